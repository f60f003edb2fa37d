"""Importance of hyperparameters of known functions, and when there is none."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from det_jupyter.contract.values.direction import Direction
from det_jupyter.master.sampling.importance import MIN_TRIALS, Sample, find_importance

pytest.importorskip("optuna")

SPACE: dict[str, Any] = {
    "optimizer": {
        "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
        "name": {"type": "categorical", "vals": ["sgd", "adam"]},
    },
    "noise": {"type": "double", "minval": 0, "maxval": 1},
    "width": 64,
}


def samples(num: int, sign: float = 1.0) -> list[Sample]:
    """Return trials whose metric is good near lr 1e-2 and does not depend on the rest."""
    rng = Random(5)
    found: list[Sample] = []
    for _ in range(num):
        exponent, name = rng.uniform(-4, -1), rng.choice(["sgd", "adam"])
        optimizer = {"lr": 10**exponent, "name": name}
        hparams = {"optimizer": optimizer, "noise": rng.random(), "width": 64}
        found.append((hparams, sign * abs(exponent + 2)))
    return found


@pytest.mark.parametrize(
    ("direction", "sign"), [(Direction.MINIMIZE, 1.0), (Direction.MAXIMIZE, -1.0)]
)
def test_the_hyperparameter_that_the_metric_depends_on_comes_first(
    direction: Direction, sign: float
) -> None:
    found = find_importance(SPACE, "loss", direction, samples(80, sign))
    assert next(iter(found.shares)) == "optimizer.lr"
    assert found.shares["optimizer.lr"] > 0.7
    assert sum(found.shares.values()) == pytest.approx(1.0)
    assert set(found.shares) == {"optimizer.lr", "optimizer.name", "noise"}
    assert (found.num_trials, found.sentence) == (80, "")


@pytest.mark.parametrize("num", [0, 1, 19])
def test_a_few_trials_say_nothing(num: int) -> None:
    found = find_importance(SPACE, "loss", Direction.MINIMIZE, samples(num))
    assert found.shares == {}
    assert found.sentence == f"Needs 20 finished trials; this search has {num}."


def test_trials_without_a_value_have_ended_and_are_not_compared() -> None:
    without = [(hparams, None) for hparams, _ in samples(3)]
    found = find_importance(SPACE, "loss", Direction.MINIMIZE, [*samples(5), *without])
    assert (found.num_trials, found.num_ended) == (5, 8)


def test_trials_outside_of_a_space_that_was_narrowed_do_not_count() -> None:
    narrow = {**SPACE, "noise": {"type": "double", "minval": 0, "maxval": 0.5}}
    found = find_importance(narrow, "loss", Direction.MINIMIZE, samples(60))
    assert MIN_TRIALS <= found.num_trials < 60


@pytest.mark.parametrize(
    ("space", "trials", "said"),
    [
        ({"width": 64}, [({"width": 64}, 0.5)] * 30, "No hyperparameter of this search varies."),
        (SPACE, [(hparams, 0.5) for hparams, _ in samples(30)], "All trials have the same loss."),
    ],
)
def test_where_nothing_differs_there_is_no_importance(
    space: dict[str, Any], trials: list[Sample], said: str
) -> None:
    assert find_importance(space, "loss", Direction.MINIMIZE, trials).sentence == said
