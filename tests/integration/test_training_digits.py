"""Trains a real model on real handwritten digits, on two ranks."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from det_jupyter.contract.run.journal import (
    BatchMetrics,
    FirstStep,
    MetricsReported,
    Progress,
    RankStarted,
)
from tests.integration.rank_support import Lab

DIGITS = """
import numpy, torch
from torch import nn
from torch.utils.data import TensorDataset
from det_jupyter.pytorch import DataLoader, PyTorchTrial

digits = torch.from_numpy(numpy.loadtxt(FILE, delimiter=",", dtype=numpy.float32))
images = digits[:, :64].reshape(-1, 1, 8, 8) / 16
labels = digits[:, 64].long()
order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
train, test = order[:1437], order[1437:]


class DigitsTrial(PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Dropout(0.1), nn.Linear(32 * 16, 10),
        ))
        self.optimizer = context.wrap_optimizer(
            torch.optim.SGD(self.model.parameters(), lr=context.get_hparam("lr"), momentum=0.9)
        )

    def build_training_data_loader(self):
        return DataLoader(
            TensorDataset(images[train], labels[train]),
            batch_size=self.context.get_per_slot_batch_size(), shuffle=True,
        )

    def build_validation_data_loader(self):
        return DataLoader(TensorDataset(images[test], labels[test]), batch_size=64)

    def train_batch(self, batch, epoch_idx, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch, batch_idx):
        x, y = batch
        scores = self.model(x)
        return {
            "loss": nn.functional.cross_entropy(scores, y),
            "accuracy": (scores.argmax(dim=1) == y).float().mean(),
        }
"""


def test_digits_are_learned_by_two_ranks(lab: Lab) -> None:
    sklearn = find_spec("sklearn")  # to import it takes 1 s CPU
    assert sklearn is not None
    assert sklearn.origin is not None
    file = Path(sklearn.origin).parent / "datasets" / "data" / "digits.csv.gz"
    gang = lab.start(
        DIGITS.replace("FILE", repr(str(file))),
        {
            "entrypoint": "DigitsTrial",
            "hyperparameters": {"global_batch_size": 64, "lr": 0.05},
            "records_per_epoch": 1437,
            "searcher": {
                "name": "single",
                "metric": "accuracy",
                "smaller_is_better": False,
                "max_length": {"epochs": 3},
            },
        },
    )
    ended = gang.ended()
    assert (ended.reason, ended.steps_completed) == ("completed", 67)
    validations = gang.validations()
    assert [v.steps_completed for v in validations] == [22, 44, 67]
    assert validations[-1].metrics["accuracy"] >= 0.97
    batches = gang.of(BatchMetrics)
    losses = [value for record in batches for value in record.values["loss"]]
    assert len(losses) == 67
    assert batches[0].first == 1
    training = [r for r in gang.of(MetricsReported) if r.group == "training"]
    assert [r.steps_completed for r in training] == [22, 44, 67]
    assert training[0].metrics["loss"] == sum(losses[:22]) / 22
    assert [r.steps_completed for r in gang.of(FirstStep)] == [1]
    assert gang.of(Progress)[-1].fraction == 1.0
    assert [r.device for r in gang.of(RankStarted, rank=1)] == ["cpu"]
