"""The searcher's metric of trials: latest and best values, and divergence."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.contract.values.direction import Direction
from det_jupyter.master.machine.model.state import Experiment, Trial
from det_jupyter.master.machine.model.turn import Turn
from det_jupyter.master.machine.rules.trial_metrics import (
    drop_later_metrics,
    record_divergence,
    record_metric,
)
from tests.unit.master.machine_world import CAPSULE

NAN, INF = math.nan, math.inf


class World:
    """An experiment with two trials, and those that were touched."""

    def __init__(self, *, smaller_is_better: bool = True) -> None:
        searcher = {"metric": "error", "smaller_is_better": smaller_is_better}
        self.experiment_ = Experiment(
            id=1, config={"searcher": searcher}, capsule=CAPSULE, python="", cwd="",
            notebook=None, created_at=0.0,
        )  # fmt: skip
        self.trials = [
            Trial(id=number, experiment_id=1, hparams={}, seed=0, created_at=0.0)
            for number in (1, 2)
        ]
        self.touched: list[Any] = []
        state = SimpleNamespace(
            experiment=lambda id: self.experiment_, trials_of=lambda experiment: self.trials
        )
        self.turn = cast(Turn, SimpleNamespace(state=state, touch=self.touched.append))

    def note(self, step: int, metric: float, trial: int = 0) -> None:
        record_metric(self.turn, self.trials[trial], step, metric)

    def forget(self, after_step: int, trial: int = 0) -> None:
        drop_later_metrics(self.turn, self.trials[trial], after_step)

    def metrics(self, trial: int = 0) -> tuple[Any, Any]:
        return self.trials[trial].latest_metric, self.trials[trial].best_metric


@pytest.mark.parametrize(("smaller_is_better", "best"), [(True, 0.25), (False, 1.0)])
def test_the_latest_and_the_best(smaller_is_better: bool, best: float) -> None:
    world = World(smaller_is_better=smaller_is_better)
    for step, metric in enumerate([0.5, 0.25, 1.0, NAN, 0.75], start=1):
        world.note(step, metric)
    assert world.metrics() == (0.75, best)
    assert world.experiment_.best_metric == best


def test_a_validation_of_an_earlier_step_is_not_the_latest() -> None:
    world = World()
    world.note(20, 0.5)
    world.note(10, 0.25)
    assert world.metrics() == (0.5, 0.25)


def test_the_experiment_is_touched_when_its_best_changes_alone() -> None:
    world = World()
    world.note(1, 0.5)
    world.note(1, 0.75, trial=1)
    world.note(2, 0.5)
    assert world.touched == [world.experiment_]
    world.note(2, 0.25, trial=1)
    assert len(world.touched) == 2


def test_a_trial_that_starts_again_loses_what_came_after_its_checkpoint() -> None:
    world = World()
    world.note(10, 0.5)
    world.note(20, 0.25)
    world.note(10, 0.375, trial=1)
    world.forget(10)
    assert world.metrics() == (0.5, 0.5)
    assert world.experiment_.best_metric == 0.375  # the other trial's
    world.forget(0)
    assert world.metrics() == (None, None)
    world.forget(0, trial=1)
    assert world.experiment_.best_metric is None


def test_a_divergence_is_noted_once_and_over_when_the_metric_is_finite() -> None:
    trial = World().trials[0]
    record_divergence(trial, "training", "loss", 7, NAN)
    record_divergence(trial, "training", "loss", 9, INF)
    record_divergence(trial, "validation", "loss", 9, -INF)
    assert {key: (each.value, each.since) for key, each in trial.divergences.items()} == {
        "training.loss": ("NaN", 7),
        "validation.loss": ("infinite", 9),
    }
    assert trial.divergence is trial.divergences["training.loss"]
    record_divergence(trial, "training", "loss", 11, 0.5)
    record_divergence(trial, "training", "other", 11, 0.5)
    assert list(trial.divergences) == ["validation.loss"]


@pytest.mark.parametrize(
    ("group", "since", "after_step", "stays"),
    [
        ("validation", 10, 10, True),
        ("validation", 10, 9, False),
        # A loss names the batch, which counts from 0: batch 9 is trained after step 9.
        ("training", 9, 10, True),
        ("training", 9, 9, False),
    ],
)
def test_alarms_stay_with_what_was_found_up_to_the_checkpoint(
    group: str, since: int, after_step: int, stays: bool
) -> None:
    world = World()
    trial = world.trials[0]
    record_divergence(trial, group, "loss", since, NAN)
    trial.alarms = ["the loss is NaN"]
    world.forget(after_step)
    assert bool(trial.divergences) == stays
    assert trial.alarms == (["the loss is NaN"] if stays else [])


values = st.one_of(st.floats(-10, 10), st.sampled_from([NAN, INF]))
reports = st.lists(st.tuples(st.integers(0, 1), values), max_size=20)


@given(reports, st.integers(0, 20), st.booleans())
def test_to_start_again_leaves_what_there_was_at_the_checkpoint(
    reported: list[tuple[int, float]], after_step: int, smaller_is_better: bool
) -> None:
    whole, fresh = (World(smaller_is_better=smaller_is_better) for _ in range(2))
    for step, (trial, value) in enumerate(reported, start=1):
        whole.note(step, value, trial)
        if trial == 1 or step <= after_step:
            fresh.note(step, value, trial)
    whole.forget(after_step)
    assert whole.metrics(0)[1] == fresh.metrics(0)[1]
    assert whole.trials[0].metrics_by_step.keys() == fresh.trials[0].metrics_by_step.keys()
    direction = Direction.of(smaller_is_better=smaller_is_better)
    best = direction.best(trial.best_metric for trial in whole.trials)
    assert whole.experiment_.best_metric == best
