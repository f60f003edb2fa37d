"""Callbacks run in Determined's order, on every rank, and keep their state through a pause."""

from __future__ import annotations

from typing import Any

from tests.integration.rank_support import Lab

CALLED = """
import torch
from torch import nn
from torch.utils.data import TensorDataset
from det_jupyter.pytorch import DataLoader, PyTorchCallback, PyTorchTrial

data = TensorDataset(torch.arange(16.0).reshape(-1, 1), torch.zeros(16, 1))


class Recorder(PyTorchCallback):
    def __init__(self, context):
        self.context = context
        self.calls = []
        self.batches = 0

    def note(self, text):
        with open(f"calls-{self.context.distributed.rank}", "a") as file:
            file.write(text + " ")

    def on_trial_startup(self, first_batch_idx, checkpoint_uuid):
        self.note(f"startup:{first_batch_idx}:{'fresh' if checkpoint_uuid is None else 'again'}")

    def on_trial_shutdown(self):
        self.note("shutdown")

    def on_training_start(self):
        self.note(f"training:{self.batches}")

    def on_training_epoch_start(self, epoch_idx):
        self.note(f"epoch_start:{epoch_idx}")

    def on_training_epoch_end(self, epoch_idx):
        self.note(f"epoch_end:{epoch_idx}")

    def on_training_workload_end(self, avg_metrics, batch_metrics):
        self.batches += len(batch_metrics)
        self.note(f"workload:{len(batch_metrics)}:{sorted(avg_metrics)[0]}")

    def on_validation_start(self):
        self.note("validation(")

    def on_validation_epoch_start(self):
        self.note("epoch_start")

    def on_validation_epoch_end(self, outputs):
        self.note(f"epoch_end:{len(outputs)}")

    def on_validation_end(self, metrics):
        self.note(f"end:{sorted(metrics)[0]})")

    def on_checkpoint_load_start(self, checkpoint):
        self.note(f"load:{checkpoint['extra']}")

    def on_checkpoint_save_start(self, checkpoint):
        checkpoint["extra"] = "added"
        self.note("save_start")

    def on_checkpoint_write_end(self, checkpoint_dir):
        self.note("write_end")

    def on_checkpoint_upload_end(self, uuid):
        self.note(f"upload_end:{len(uuid)}")

    def state_dict(self):
        return {"batches": self.batches}

    def load_state_dict(self, state_dict):
        self.batches = state_dict["batches"]


class CalledTrial(PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(nn.Linear(1, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), 1e-4))
        self.recorder = Recorder(context)

    def build_callbacks(self):
        return {"recorder": self.recorder}

    def build_training_data_loader(self):
        return DataLoader(data, self.context.get_per_slot_batch_size())

    def build_validation_data_loader(self):
        return DataLoader(data, 8)

    def train_batch(self, batch, epoch_idx, batch_idx):
        self.recorder.note(f"B{batch_idx}")
        assert self.context.current_train_batch() == batch_idx
        assert self.context.current_train_epoch() == epoch_idx
        assert self.context.is_epoch_start() == (batch_idx % 4 == 0)
        assert self.context.is_epoch_end() == (batch_idx % 4 == 3)
        x, y = batch
        loss = nn.functional.mse_loss(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch, batch_idx):
        x, y = batch
        return {"error": nn.functional.mse_loss(self.model(x), y)}
"""


def called(batches: int, **changes: Any) -> dict[str, Any]:
    return {
        "entrypoint": "CalledTrial",
        "hyperparameters": {"global_batch_size": 4},
        "searcher": {"name": "single", "metric": "error", "max_length": {"batches": batches}},
        "min_validation_period": {"batches": 3},
        "min_checkpoint_period": {"batches": 6},
        "scheduling_unit": 2,
        "checkpoint_policy": "none",
        "perform_initial_validation": True,
        **changes,
    }


def test_hooks_run_in_determineds_order(lab: Lab) -> None:
    lab.start(CALLED, called(6), ranks=1).ended()
    validation = "validation( epoch_start epoch_end:2 end:error) "
    assert (lab.cwd / "calls-0").read_text() == (
        f"startup:0:fresh training:0 {validation}"
        "epoch_start:0 B0 B1 workload:2:loss "
        f"B2 workload:1:loss {validation}"
        "B3 epoch_end:0 workload:1:loss "
        "epoch_start:1 B4 B5 workload:2:loss "
        f"save_start write_end upload_end:36 {validation}shutdown "
    )


def test_callbacks_keep_their_state_and_only_the_chief_hears_of_files(lab: Lab) -> None:
    first = lab.start(CALLED, called(6))
    first.ended()
    before = [(lab.cwd / f"calls-{rank}").read_text() for rank in (0, 1)]
    assert before[0].replace("write_end ", "") == before[1]
    lab.start(CALLED, called(8), checkpoint=first.last_checkpoint()).ended()
    after = (lab.cwd / "calls-1").read_text().removeprefix(before[1])
    validation = "validation( epoch_start epoch_end:1 end:error) "
    assert after == (
        f"startup:6:again load:added training:6 {validation}"  # saved before it was validated
        "B6 B7 epoch_end:1 workload:2:loss "
        f"save_start upload_end:36 {validation}shutdown "
    )


def test_shutdown_runs_after_an_error_too(lab: Lab) -> None:
    source = CALLED.replace('self.recorder.note(f"B{batch_idx}")', "raise KeyError(1)")
    lab.start(source, called(6), ranks=1).wait()
    assert (lab.cwd / "calls-0").read_text().endswith("shutdown ")
