"""Paused runs end bit for bit like undisturbed ones, wherever they were paused."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from det_jupyter.contract.run.journal import CheckpointSaved, MetricsReported
from tests.integration.rank_support import Gang, Lab, Zygote, opened_lab
from tests.trials import Gate

# Everything that a resumed run could get wrong: shuffling, dropout on each rank, numbers drawn in
# the loader's workers and from all three generators, momentum, a schedule, gradients in a window.
RESTLESS = """
import random, time
import numpy, torch
from torch import nn
from torch.utils.data import Dataset
from det_jupyter.pytorch import DataLoader, LRScheduler, PyTorchTrial


class Noisy(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(90, 8, generator=generator)
        self.y = self.x.sum(dim=1, keepdim=True)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        noise = random.random() + numpy.random.rand() + torch.rand(())
        return self.x[index] + 0.1 * noise.float(), self.y[index]


class RestlessTrial(PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(nn.Sequential(
            nn.Unflatten(1, (1, 8)), nn.Conv1d(1, 4, 3, padding=1), nn.Flatten(),
            nn.Linear(32, 400), nn.BatchNorm1d(400), nn.ReLU(), nn.Dropout(0.3),
            nn.Linear(400, 1),
        ))
        self.optimizer = context.wrap_optimizer(
            torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        )
        self.scheduler = context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.MultiStepLR(self.optimizer, [5, 12, 20, 35], gamma=0.7),
            LRScheduler.StepMode.STEP_EVERY_BATCH,
        )

    def build_training_data_loader(self):
        return DataLoader(
            Noisy(), self.context.get_per_slot_batch_size(), shuffle=True,
            num_workers=self.context.get_hparam("num_workers"),
        )

    def build_validation_data_loader(self):
        return DataLoader(Noisy(), 16)

    def train_batch(self, batch, epoch_idx, batch_idx):
        x, y = batch
        loss = nn.functional.mse_loss(self.model(x), y) * (1 + 0.01 * random.random())
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        rate = self.scheduler.get_last_lr()[0]
        return {"loss": loss, "noise": numpy.random.rand(), "rate": rate}

    def evaluate_batch(self, batch, batch_idx):
        x, y = batch
        return {"error": nn.functional.mse_loss(self.model(x), y)}
"""


TRAINING = "        x, y = batch\n        loss"  # the first lines of its train_batch


def config(*, num_workers: int = 0, **changes: Any) -> dict[str, Any]:
    return {
        "entrypoint": "RestlessTrial",
        "hyperparameters": {"global_batch_size": 16, "num_workers": num_workers},
        "searcher": {"name": "single", "metric": "error", "max_length": {"batches": 50}},
        "min_validation_period": {"batches": 15},
        "scheduling_unit": 10,
        **changes,
    }


def brief(**changes: Any) -> dict[str, Any]:
    """Return a configuration of 24 batches, of which the 7th, 14th and 21st are validated."""
    return config(
        **{
            "searcher": {"name": "single", "metric": "error", "max_length": {"batches": 24}},
            "min_validation_period": {"batches": 7},
            "scheduling_unit": 5,
            **changes,
        }
    )


def pause(gang: Gang, gate: Gate) -> None:
    """Ask for a pause when the gang is at the gate."""
    gang.wait_until(gate.is_reached, f"it waits before batch {gate.batch}")
    gang.page.raise_signal("preempt")
    ended = gang.ended()
    assert ended.reason == "preempted"
    assert ended.steps_completed == gang.last_checkpoint().steps_completed < 24


def assert_same_weights(one: Gang, other: Gang) -> None:
    expected, got = one.weights(), other.weights()
    assert expected.keys() == got.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensor, got[name]), name


def reported(*runs: Gang) -> list[tuple[str, int]]:
    """Return what was reported, and after which batch."""
    return [(r.group, r.steps_completed) for run in runs for r in run.of(MetricsReported)]


@pytest.mark.parametrize(("num_workers", "ranks"), [(2, 1), (0, 3)])
def test_a_paused_run_ends_bit_identical_to_an_undisturbed_one_and_reports_nothing_twice(
    lab: Lab, tmp_path: Path, num_workers: int, ranks: int
) -> None:
    document = brief(num_workers=num_workers)
    undisturbed = lab.start(RESTLESS, document, ranks=ranks)
    assert undisturbed.ended().reason == "completed"

    gate = Gate(tmp_path, random.randrange(1, 12))
    first = lab.start(gate.source(RESTLESS, before=TRAINING), document, ranks=ranks)
    pause(first, gate)
    saved = first.last_checkpoint()
    gate = Gate(tmp_path, saved.steps_completed + random.randrange(1, 4))
    source = gate.source(RESTLESS, before=TRAINING)
    second = lab.start(source, document, ranks=ranks, checkpoint=saved)
    pause(second, gate)
    last = lab.start(RESTLESS, document, ranks=ranks, checkpoint=second.last_checkpoint())
    assert last.ended().reason == "completed"
    assert_same_weights(undisturbed, last)
    assert last.validations()[-1].metrics == undisturbed.validations()[-1].metrics
    assert last.of(CheckpointSaved)[-1].steps_completed == 24
    told = reported(first, second, last)
    assert [steps for group, steps in told if group == "validation"] == [7, 14, 21, 24]
    training = [steps for group, steps in told if group == "training"]
    assert training == [5, 7, 10, 14, 15, 20, 21, 24]  # and none for the pauses
    assert told == reported(undisturbed)


def test_a_pause_inside_an_aggregation_window_loses_no_gradient(lab: Lab) -> None:
    aggregating: dict[str, Any] = {"optimizations": {"aggregation_frequency": 7}}
    # A checkpoint at batch 10 is three batches into a window.
    periodic = brief(
        min_checkpoint_period={"batches": 10}, checkpoint_policy="none", **aggregating
    )
    first = lab.start(RESTLESS, periodic)
    first.ended()
    saved = first.of(CheckpointSaved)
    assert [record.steps_completed for record in saved] == [10, 20, 24]
    plan = first.last_checkpoint().model_copy(
        update={"uuid": saved[0].uuid, "path": saved[0].path, "steps_completed": 10}
    )
    second = lab.start(RESTLESS, brief(**aggregating), checkpoint=plan)
    second.ended()
    assert_same_weights(first, second)


def judged(act: str) -> str:
    """Return RestlessTrial with something happening in its evaluation, which draws numbers."""
    parts = RESTLESS.rpartition("        x, y = batch\n")
    return f"{parts[0]}        random.random(), torch.rand(3)\n{act}{parts[1]}{parts[2]}"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, zygote: Zygote) -> Iterator[Gang]:
    """Return a run to the end of what draws numbers in its evaluation."""
    with opened_lab(tmp_path_factory.mktemp("undisturbed"), zygote) as lab:
        gang = lab.start(judged(""), brief())
        gang.ended()
        yield gang


def test_a_run_killed_in_its_last_validation_needs_only_that(lab: Lab, undisturbed: Gang) -> None:
    stuck = """
        import pathlib
        if self.context.position.batch_idx == 23:
            pathlib.Path("stuck").touch()
            time.sleep(60)
"""
    first = lab.start(judged(stuck), brief())
    first.wait_until((lab.cwd / "stuck").exists, "the last validation runs")
    first.kill()
    first.wait_for_all()
    assert first.last_checkpoint().steps_completed == 24
    assert [v.steps_completed for v in first.validations()] == [7, 14, 21]
    second = lab.start(judged(""), brief(), checkpoint=first.last_checkpoint())
    assert second.ended().steps_completed == 24
    assert [v.steps_completed for v in second.validations()] == [24]
    assert second.validations()[0].metrics == undisturbed.validations()[-1].metrics
    assert not second.of(CheckpointSaved)
    assert_same_weights(undisturbed, first)


def test_a_run_whose_validation_fails_goes_on_bit_identical_from_the_batch_before_it(
    lab: Lab, undisturbed: Gang
) -> None:
    periods: dict[str, Any] = {"min_checkpoint_period": {"batches": 7}}
    fails = "        if self.context.position.batch_idx == 13: raise OSError('disk')\n"
    first = lab.start(judged(fails), brief(**periods))
    first.wait()
    assert first.last_checkpoint().steps_completed == 14
    second = lab.start(judged(""), brief(**periods), checkpoint=first.last_checkpoint())
    second.ended()
    assert [v.steps_completed for v in second.validations()] == [14, 21, 24]
    assert [c.steps_completed for c in second.of(CheckpointSaved)] == [21, 24]
    assert_same_weights(undisturbed, second)
