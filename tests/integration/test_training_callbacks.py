"""Callbacks run in Determined's order, on every rank, and keep their state through a pause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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


class Newer(Recorder):
    def on_training_batch_start(self, batch, epoch_idx, batch_idx):
        self.note(f"batch_start:{epoch_idx}:{batch_idx}:{len(batch[0])}")

    def on_training_batch_end(self, metrics, epoch_idx, batch_idx):
        self.note(f"batch_end:{sorted(metrics)[0]}:{batch_idx}")

    def on_validation_batch_end(self, outputs, batch_idx):
        self.note(f"batch_end:{sorted(outputs)[0]}:{batch_idx}")

    def on_interrupt(self):
        self.note("interrupt")

    def on_exception(self, exception):
        self.note(f"exception:{exception!r}")


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


NEWER = CALLED.replace("self.recorder = Recorder(", "self.recorder = Newer(")


def test_batches_have_hooks_on_every_rank(lab: Lab) -> None:
    lab.start(NEWER, called(2, perform_initial_validation=False)).ended()
    for rank in (0, 1):
        written = "write_end " if rank == 0 else ""
        assert (lab.cwd / f"calls-{rank}").read_text() == (
            "startup:0:fresh training:0 epoch_start:0 "
            "batch_start:0:0:2 B0 batch_end:loss:0 batch_start:0:1:2 B1 batch_end:loss:1 "
            f"workload:2:loss save_start {written}upload_end:36 "
            "validation( epoch_start batch_end:error:0 epoch_end:1 end:error) shutdown "
        )


def test_a_pause_is_heard_of_on_every_rank_before_its_checkpoint(lab: Lab) -> None:
    gang = lab.start(NEWER, called(1_000_000, perform_initial_validation=False))
    gang.wait_until(lambda: gang.steps_completed() > 0, "it has trained")
    gang.page.raise_signal("preempt")
    assert gang.ended().reason == "preempted"
    for rank in (0, 1):
        calls = (lab.cwd / f"calls-{rank}").read_text().split()
        after = calls[calls.index("interrupt") :]
        expected = ["interrupt", "save_start", "write_end", "upload_end:36", "shutdown"]
        assert after == [call for call in expected if rank == 0 or call != "write_end"]
        assert calls.count("interrupt") == 1


def test_an_exception_is_heard_of_before_the_shutdown(lab: Lab) -> None:
    source = NEWER.replace('self.recorder.note(f"B{batch_idx}")', "raise KeyError(1)")
    lab.start(source, called(6, perform_initial_validation=False), ranks=1).wait()
    assert (lab.cwd / "calls-0").read_text().endswith("exception:KeyError(1) shutdown ")


def test_an_error_in_a_hook_names_the_callback(lab: Lab) -> None:
    source = CALLED.replace('self.note(f"epoch_start:{epoch_idx}")', "raise KeyError(1)")
    gang = lab.start(source, called(6), ranks=1)
    gang.wait()
    told = "raised in on_training_epoch_start of the callback 'recorder'"
    assert told in gang.failures()[0].traceback


STOPPED = CALLED.replace(
    'return {"recorder": self.recorder}',
    "from det_jupyter.pytorch import EarlyStopping; "
    'return {"early": EarlyStopping(self.context, "same", patience=3)}',
).replace(
    'return {"error": nn.functional.mse_loss(self.model(x), y)}',
    'return {"error": 0.0, "same": 1.0}',
)


def test_early_stopping_ends_a_trial_on_all_ranks_and_goes_on_counting(lab: Lab) -> None:
    first = lab.start(STOPPED, called(6, perform_initial_validation=False))
    assert first.ended().reason == "completed"  # after validations at 3 and 6: one is stale
    config = called(60, perform_initial_validation=False)
    second = lab.start(STOPPED, config, checkpoint=first.last_checkpoint())
    ended = second.ended()
    assert ended.reason == "stopped"
    assert second.last_checkpoint().steps_completed == 12  # the third stale one


LOGGED = CALLED.replace(
    'self.note(f"startup',
    'self.context.get_tensorboard_writer().add_scalar("rank", self.context.distributed.rank, 1)\n'
    '        self.note(f"startup',
).replace(
    "self.recorder = Recorder(context)",
    "self.recorder = Recorder(context); context.set_enable_tensorboard_logging(True)",
)


def points(folder: Path) -> dict[str, list[int]]:
    """Return at which steps each tag has points, as TensorBoard would draw them."""
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = reader.EventAccumulator(str(folder))
    events.Reload()
    return {tag: [point.step for point in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_tensorboard_has_each_point_once_also_after_a_pause(lab: Lab) -> None:
    config = called(6, perform_initial_validation=False)
    first = lab.start(LOGGED, config)
    first.ended()
    folder = lab.data_dir / "tensorboard" / "1" / "1"
    before = {"Determined/loss": [2, 3, 4, 6], "Determined/val_error": [3, 6], "rank": [1]}
    assert points(folder) == before
    config = called(8, perform_initial_validation=False)
    lab.start(LOGGED, config, checkpoint=first.last_checkpoint()).ended()
    assert points(folder) == {
        "Determined/loss": [2, 3, 4, 6, 8],
        "Determined/val_error": [3, 6, 8],  # that of batch 6 was run again
        "rank": [1, 1],
    }
    assert points(folder / "rank_1") == {"rank": [1, 1]}
