"""A rank trains the trial of a plan: to its target, from a checkpoint, with changes on the way."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from det_jupyter.contract.messages import Change, ChangeOrder
from det_jupyter.contract.run.control_page import ControlPage
from det_jupyter.contract.run.journal import (
    ChangeMade,
    CheckpointSaved,
    MetricsReported,
    Notice,
    StepTimes,
)
from det_jupyter.contract.values.lengths import parse_length
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.checkpoints.state_snapshot import SnapshotMemory
from tests.unit.pytorch.training.planned_samples import Line, Planned


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(map(torch.equal, one, other))


def validations(run: Planned) -> list[int]:
    return [r.steps_completed for r in run.records(MetricsReported) if r.group == "validation"]


def test_a_run_trains_to_its_target_and_saves_there(tmp_path: Path) -> None:
    run = Planned(tmp_path)
    assert (run.run.steps_completed, run.run.trained) == (0, 0)
    before = run.run.live()
    assert (before["trial"], before["model"], before["optimizer"]) == (None, None, None)
    assert (before["batch"], before["metrics"], "loss" in before) == (None, {}, False)
    assert run.train() == "completed"
    assert (run.run.steps_completed, run.run.trained) == (10, 10)
    assert len(run.first_steps) == 1
    assert validations(run) == [4, 8, 10]
    assert run.records(CheckpointSaved)[-1].steps_completed == 10
    parts = {part for record in run.records(StepTimes) for part in record.parts}
    assert "forward" in parts
    assert "exchange" not in parts, "with no other rank"
    live = run.run.live()
    assert isinstance(live["trial"], Line)
    assert live["model"] is live["models"][0] is live["trial"].model
    assert live["optimizer"] is live["optimizers"][0]
    assert (live["batch_idx"], live["steps_completed"]) == (9, 10)
    assert isinstance(live["loss"], float)
    assert live["loss"] == pytest.approx(float(live["metrics"]["loss"]))
    assert len(live["batch"]) == 2
    assert live["context"].get_experiment_id() == 3
    assert (live["context"].get_trial_id(), live["context"].get_trial_seed()) == (7, 11)


def test_a_run_that_goes_on_from_a_checkpoint_ends_with_the_same_bits(tmp_path: Path) -> None:
    straight, first = (
        Planned(tmp_path / "a"),
        Planned(tmp_path / "b", target=parse_length({"batches": 6})),
    )
    assert straight.train() == "completed"
    first.train()
    checkpoint = first.last_checkpoint(tmp_path / "b")
    assert checkpoint.steps_completed == 6
    second = Planned(tmp_path / "b", run=2, allocation_id="7.2", checkpoint=checkpoint)
    assert second.train() == "completed"
    assert (second.run.steps_completed, second.run.trained) == (10, 4)
    assert second.run.context.get_initial_batch() == 6
    assert validations(second) == [8, 10]
    assert same(straight.weights(), second.weights())


def test_a_run_that_leaves_saves_without_a_copy_of_models_and_optimizers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight, first = Planned(tmp_path / "a"), Planned(tmp_path / "b")
    straight.train()
    copied, copy = list[torch.Tensor](), SnapshotMemory.copy

    def noting(memory: SnapshotMemory, tensor: torch.Tensor) -> torch.Tensor:
        copied.append(tensor)
        return copy(memory, tensor)

    monkeypatch.setattr(SnapshotMemory, "copy", noting)
    with closing(ControlPage(first.folder.control)) as page:
        page.raise_signal("preempt")
    assert first.train() == "preempted"
    checkpoint = first.last_checkpoint(tmp_path / "b")
    assert 0 < checkpoint.steps_completed == first.run.trained < 10
    context = first.run.context
    states = (state for one in context.optimizers for state in one.state.values())
    own = [*context.models[0].parameters(), *(each for state in states for each in state.values())]
    assert copied
    assert not {each.data_ptr() for each in own} & {each.data_ptr() for each in copied}
    monkeypatch.undo()
    second = Planned(tmp_path / "b", run=2, allocation_id="7.2", checkpoint=checkpoint)
    second.train()
    assert same(straight.weights(), second.weights())


def test_a_missing_batch_size_is_told_before_anything_is_built(tmp_path: Path) -> None:
    configuration = {
        "searcher": {"name": "single", "metric": "error", "max_length": {"records": 8}}
    }
    run = Planned(tmp_path, hparams={}, configuration={**configuration, "hyperparameters": {}})
    with pytest.raises(ConfigError, match="global_batch_size"):
        run.train()
    assert run.run.trial is None


def rates(run: Planned) -> list[float]:
    return [group["lr"] for group in run.run.context.optimizers[0].param_groups]


@pytest.mark.parametrize(
    ("change", "rate", "text", "error"),
    [
        (Change(lr=0.5), 0.5, "lr 0.125 → 0.5", ""),
        (Change(lr_factor=0.5), 0.0625, "lr 0.125 → 0.0625", ""),
        (Change(min_validation_period=parse_length({"batches": 3})), 0.125,
         "min_validation_period 4 batches → 3 batches", ""),
        (Change(min_validation_period=parse_length({"batches": 0}), lr=0.25), 0.25,
         "lr 0.125 → 0.25, min_validation_period 4 batches → none", ""),
        (Change(lr=0.5, optimizer=3), 0.125, "", "optimizer: got 3"),
    ],
)  # fmt: skip
def test_a_change_is_made_and_told_or_refused_with_the_reason(
    tmp_path: Path, change: Change, rate: float, text: str, error: str
) -> None:
    run = Planned(tmp_path, orders=[ChangeOrder(id=4, change=change)])
    run.train()
    assert rates(run) == [rate]
    [made] = run.records(ChangeMade)
    assert (made.order_id, made.steps_completed, made.text) == (4, 0, text)
    assert made.error.startswith(error)
    assert bool(made.error) is bool(error)
    periods = {"3": [3, 6, 9, 10], "none": [10]}
    assert validations(run) == periods.get(text.rpartition("→ ")[2].split(" ")[0], [4, 8, 10])


def test_changes_of_earlier_runs_are_repeated_after_their_batches(tmp_path: Path) -> None:
    changes = [
        ChangeOrder(id=2, change=Change(lr_factor=0.5), steps_completed=6),
        ChangeOrder(id=1, change=Change(lr=1.0), steps_completed=6),
        ChangeOrder(id=3, change=Change(lr_factor=0.5), steps_completed=99),
    ]
    run, plain = Planned(tmp_path / "a", orders=changes), Planned(tmp_path / "b")
    run.train(), plain.train()
    assert rates(run) == [0.5], "first the lower number, and the third is not due"
    assert run.records(ChangeMade) == []
    assert not same(run.weights(), plain.weights())


def test_changes_before_a_checkpoint_are_in_it(tmp_path: Path) -> None:
    every = Change(lr_factor=0.5, min_validation_period=parse_length({"batches": 3}))
    change = ChangeOrder(id=1, change=every, steps_completed=2)
    first = Planned(tmp_path, orders=[change], target=parse_length({"batches": 6}))
    first.train()
    second = Planned(
        tmp_path, run=2, allocation_id="7.2", orders=[change],
        checkpoint=first.last_checkpoint(tmp_path),
    )  # fmt: skip
    second.train()
    assert rates(second) == [0.0625], "it is not made twice"
    # The checkpoint was saved before the validation that was due there.
    assert validations(second) == [6, 9, 10], "but its period counts"


class Asking(Line):
    """Asks where it is in the training."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self.asked: list[Any] = []

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        context = self.context
        self.asked.append(
            (
                context.current_train_batch(), context.current_train_epoch(),
                context.is_epoch_start(), context.is_epoch_end(), context._epoch_len,
            )
        )  # fmt: skip
        return super().train_batch(batch, epoch_idx, batch_idx)


def test_a_trial_knows_where_it_is(tmp_path: Path) -> None:
    run = Planned(tmp_path, Asking)
    assert run.run.context._epoch_len is None
    run.train()
    trial = run.run.trial
    assert isinstance(trial, Asking)
    assert trial.asked == [
        (batch, batch // 4, batch % 4 == 0, batch % 4 == 3, 4) for batch in range(10)
    ]


def test_an_initial_validation_is_made_if_it_is_asked_for(tmp_path: Path) -> None:
    run = Planned(tmp_path, configuration={"perform_initial_validation": True})
    run.train()
    assert validations(run) == [0, 4, 8, 10]


class Evaluating(Line):
    """Has its model in eval mode before the training; notes the mode of each batch."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self.model.eval()
        self.modes = set[bool]()

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        self.modes.add(self.model.training)
        return super().train_batch(batch, epoch_idx, batch_idx)


@pytest.mark.parametrize("validates", [False, True])
def test_a_model_is_trained_in_training_mode(tmp_path: Path, validates: bool) -> None:
    run = Planned(tmp_path, Evaluating, configuration={"perform_initial_validation": validates})
    run.train()
    assert isinstance(run.run.trial, Evaluating)
    assert run.run.trial.modes == {True}


class Stopping(Line):
    """Asks to stop in a batch."""

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        if batch_idx + 1 == self.context.get_hparam("stop"):
            self.context.set_stop_requested(True)
        return super().train_batch(batch, epoch_idx, batch_idx)


@pytest.mark.parametrize(
    ("batch", "reason", "end"),
    [(4, "stopped", 4), (5, "stopped", 8), (10, "completed", 10)],
)
def test_a_trial_that_asks_to_stop_does_so_after_the_next_report(
    tmp_path: Path, batch: int, reason: str, end: int
) -> None:
    run = Planned(tmp_path, Stopping, hparams={"global_batch_size": 8, "stop": batch})
    assert run.train() == reason
    assert run.run.steps_completed == end
    assert run.records(CheckpointSaved)[-1].steps_completed == end


class Rated(Line):
    """Takes its learning rate from the hyperparameters."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        for group in self.optimizer.param_groups:
            group["lr"] = context.get_hparam("lr")


def test_a_run_goes_on_with_what_its_hyperparameters_have_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"global_batch_size": 8, "lr": 0.125}
    first = Planned(tmp_path, Rated, hparams=given, target=parse_length({"batches": 6}))
    first.train()
    assert capsys.readouterr().err == ""
    second = Planned(
        tmp_path, Rated, run=2, allocation_id="7.2", hparams=given | {"lr": 0.5},
        checkpoint=first.last_checkpoint(tmp_path),
    )  # fmt: skip
    second.train()
    assert rates(second) == [0.5]
    told = capsys.readouterr().err
    assert told.startswith("training goes on at batch 6 with other hyperparameters: lr 0.125 ")
    assert "older" not in told


@pytest.mark.parametrize(
    ("is_last", "target", "validated"), [(True, 8, [4, 8]), (False, 13, [4, 8, 12, 13])]
)
def test_a_trial_that_is_extended_meanwhile_trains_on(
    tmp_path: Path, is_last: bool, target: int, validated: list[int]
) -> None:
    run = Planned(tmp_path, target=parse_length({"batches": 4}), target_is_last=is_last)
    ControlPage(run.folder.control).extend(target, is_last=True)
    assert run.train() == "completed"
    assert run.run.steps_completed == target
    assert validations(run) == validated
    assert run.run.context.position.end == max(10, target)


class Forgetting(Line):
    """Draws from a generator that is in no checkpoint."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self.noise = torch.Generator()

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        torch.rand(1, generator=self.noise)
        return super().train_batch(batch, epoch_idx, batch_idx)


def test_what_a_trial_would_lose_is_told_with_the_first_checkpoint(tmp_path: Path) -> None:
    run = Planned(tmp_path, Forgetting)
    run.train()
    [notice] = run.records(Notice)
    assert notice.text.startswith("`self.noise` (torch.Generator) changes while training and is")


def test_steps_after_the_training_are_those_of_any_optimizer(tmp_path: Path) -> None:
    optimizations = {
        "aggregation_frequency": 2,
        "large_batch": {"base_batch_size": 4, "warmup": {"batches": 0}},
    }
    run = Planned(tmp_path, configuration={"optimizations": optimizations})
    run.train()
    (optimizer,) = run.run.context.optimizers
    optimizer.param_groups[0]["momentum"] = 0
    before = run.weights()
    for weights in run.run.context.models[0].parameters():
        weights.grad = torch.ones_like(weights)
    optimizer.step()
    for one, other in zip(run.weights(), before, strict=True):
        torch.testing.assert_close(one, other - 0.125)
