"""Texts of handles: state, best metric and hyperparameters; they never raise."""

from __future__ import annotations

from typing import Any, cast

import pytest

from det_jupyter.client import Client, Experiment, Trial
from det_jupyter.client.handle_text import checkpoint_line, experiment_line, trial_line
from det_jupyter.contract.messages import State, TrialView
from det_jupyter.errors import MasterUnreachable
from tests.unit.view.view_samples import checkpoint, experiment, trial


def ended(number: int, best: float | None, lr: float, **changes: Any) -> TrialView:
    fields = {"state": State.COMPLETED, "allocation": None, "progress": 1.0,
              "hparams": {"global_batch_size": 64, "optimizer": {"lr": lr}}}  # fmt: skip
    return trial(id=number, best_metric=best, **fields | changes)


def test_an_experiment_says_its_best_value_and_the_hyperparameters_that_reached_it() -> None:
    view = experiment(ended(1, 0.95, 0.1), state=State.COMPLETED, progress=1.0)
    assert experiment_line(view) == (
        "Experiment 7 “digits” (completed, 100%, accuracy 0.9500, global_batch_size=64, "
        "optimizer.lr=0.1)"
    )


def test_a_search_says_which_trial_is_best_and_what_differs() -> None:
    view = experiment(ended(1, 0.5, 0.1), ended(2, 0.75, 0.01), ended(3, None, 0.3))
    line = experiment_line(view)
    assert line.endswith("3 trials, accuracy 0.7500 of trial 2, optimizer.lr=0.01)")


def test_before_the_first_trial_there_is_a_line_too() -> None:
    view = experiment(progress=0.0).model_copy(update={"trials": []})
    assert experiment_line(view) == "Experiment 7 “digits” (queued, 0%)"


def test_a_trial_and_a_checkpoint_say_theirs() -> None:
    assert trial_line(ended(3, 0.5, 0.1)) == (
        "Trial 3 (completed, batch 58, 100%, best metric 0.5000, global_batch_size=64, "
        "optimizer.lr=0.1)"
    )
    line = checkpoint_line(checkpoint(10, 0.5, size_bytes=42_000, state="DELETED"), {"lr": 1e-5})
    assert line == "Checkpoint uuid-10 of trial 1: batch 10, metric 0.5, 42 kB, deleted, lr=1e-05"


@pytest.mark.parametrize(("length", "shown"), [(60, "n" * 60), (61, "n" * 59 + "…")])
def test_a_long_name_is_cut(length: int, shown: str) -> None:
    view = experiment(progress=0.0, name="n" * length).model_copy(update={"trials": []})
    assert experiment_line(view) == f"Experiment 7 “{shown}” (queued, 0%)"


def test_many_hyperparameters_are_cut() -> None:
    view = ended(1, None, 0.1, hparams={f"name{i}": i for i in range(100)})
    assert len(trial_line(view)) < 200
    assert trial_line(view).endswith("…)")


class NoMaster:
    def experiment(self, experiment_id: int) -> Any:
        raise MasterUnreachable("no answer")

    def trial(self, trial_id: int) -> Any:
        raise MasterUnreachable("no answer")


def test_without_a_master_there_is_a_line_and_no_error() -> None:
    client = cast("Client", NoMaster())
    assert repr(Experiment(client, 7)) == "Experiment 7 (no answer)"
    assert repr(Trial(client, 3, experiment_of=str)) == "Trial 3 (no answer)"
