"""A trial whose speed is limited by the resource that its hyperparameters name."""

from __future__ import annotations

from typing import Any

SOURCE = """
import time
import torch
from torch import nn
from det_jupyter.pytorch import DataLoader, PyTorchTrial

inputs = torch.randn(512, 64)
targets = inputs.sum(dim=1, keepdim=True)


class Records(torch.utils.data.Dataset):
    def __init__(self, pause_s):
        self.pause_s = pause_s

    def __len__(self):
        return len(inputs)

    def __getitem__(self, index):
        if self.pause_s:
            time.sleep(self.pause_s)
        return inputs[index], targets[index]


def compute(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(1000))


class MadeTrial(PyTorchTrial):
    def __init__(self, context):
        self.context = context
        width, depth = self.hparam("width", 64), self.hparam("depth", 1)
        layers = [nn.Linear(64, width)]
        for _ in range(depth):
            layers += [nn.ReLU(), nn.Linear(width, width)]
        self.model = context.wrap_model(nn.Sequential(*layers, nn.ReLU(), nn.Linear(width, 1)))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=1e-3))
        if self.hparam("ballast", 0):  # state that takes no time to train
            self.model.register_buffer("ballast", torch.zeros(self.hparam("ballast", 0)))
        if self.hparam("device_s", 0):
            self.slow_down_transfers()
        self.is_slow = context.distributed.rank == self.hparam("slow_rank", -1)

    def hparam(self, name, otherwise):
        return self.context.get_hparams().get(name, otherwise)

    def slow_down_transfers(self):
        to_device = self.context.to_device

        def slowly(batch):
            time.sleep(self.hparam("device_s", 0))
            return to_device(batch)

        self.context.to_device = slowly

    def build_training_data_loader(self):
        pause_s = self.hparam("data_s", 0) or (self.is_slow and self.hparam("slow_data_s", 0))
        size = self.context.get_per_slot_batch_size()
        return DataLoader(Records(pause_s / size), size, num_workers=self.hparam("workers", 0))

    def build_validation_data_loader(self):
        return DataLoader(Records(0), 64)

    def train_batch(self, batch, epoch_idx, batch_idx):
        x, y = batch
        time.sleep(self.hparam("compute_s", 0))
        if self.is_slow:
            compute(self.hparam("slow_compute_s", 0))
            time.sleep(self.hparam("slow_sleep_s", 0))
        if self.hparam("jitter_s", 0) and batch_idx % self.context.distributed.size == (
            self.context.distributed.rank
        ):
            time.sleep(self.hparam("jitter_s", 0))
        loss = nn.functional.mse_loss(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch, batch_idx):
        time.sleep(self.hparam("validation_s", 0) / 8)
        x, y = batch
        return {"error": nn.functional.mse_loss(self.model(x), y)}

"""


def config(num_slots: int = 1, **hparams: Any) -> dict[str, Any]:
    """Return the configuration of a trial that trains until it is killed."""
    return {
        "name": "made",
        "entrypoint": "MadeTrial",
        "hyperparameters": {"global_batch_size": 32 * num_slots, **hparams},
        "searcher": {"name": "single", "metric": "error", "max_length": {"batches": 1_000_000}},
        "resources": {"slots_per_trial": num_slots},
        "checkpoint_policy": "none",
    }
