"""Previews: the tables of Determined, and bounds that simulated searches keep."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from det_jupyter.config import ExperimentConfig
from det_jupyter.searcher.preview import Preview, preview, sample_ranges
from tests.unit.searcher.searcher_world import World, make_config


def preview_of(config: ExperimentConfig) -> Preview:
    return preview(config.searcher, config.hyperparameters)


def plan(**searcher: Any) -> Preview:
    return preview_of(make_config(**searcher))


def adaptive(max_trials: int, max_length: int, **changes: Any) -> Preview:
    searcher = {"name": "adaptive_asha", "max_trials": max_trials, "max_length": max_length}
    return plan(**searcher, **changes)


def table(found: Preview) -> list[tuple[int, int]]:
    return list(found.trials.items())


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (adaptive(16, 937), [(58, 9), (234, 5), (937, 2)]),
        (adaptive(100, 1000), [(15, 53), (62, 30), (250, 13), (1000, 4)]),
        (adaptive(10, 900, divisor=3, max_rungs=10), [(100, 5), (300, 3), (900, 2)]),
        (plan(name="single", max_length={"epochs": 4}), [(4, 1)]),
        (plan(name="random", max_length={"epochs": 4}, max_trials=7), [(4, 7)]),
    ],
)
def test_trials_are_expected_to_end_there(found: Preview, expected: list[tuple[int, int]]) -> None:
    assert table(found) == expected
    assert found.num_trials == sum(number for _, number in expected)
    assert found.expected == sum(length * number for length, number in expected)


def test_a_grid_has_its_points() -> None:
    space = {"depth": {"type": "int", "minval": 1, "maxval": 3, "count": 9}, "x": [1, 2]}
    found = preview_of(make_config(space, name="grid", max_length={"epochs": 4}))
    assert table(found) == [(4, 3)]


def test_brackets_are_told_apart() -> None:
    found = adaptive(16, 937)
    brackets = [list(bracket.trials.items()) for bracket in found.brackets]
    assert brackets == [[(58, 9), (234, 2), (937, 1)], [(234, 3), (937, 1)]]
    assert [bracket.max_concurrent_trials for bracket in found.brackets] == [8, 4]
    assert (found.searcher, found.metric, found.unit) == ("adaptive_asha", "error", "batches")


ASHA: dict[str, Any] = {
    "name": "async_halving", "num_rungs": 2, "divisor": 3, "max_length": {"epochs": 9},
    "max_trials": 9,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "amounts"),
    [
        # 3 of 9 go on from 3 to 9 epochs; at least 3, at most all but the first 2
        ({}, (6 * 3 + 3 * 9, 6 * 3 + 3 * 9, 2 * 3 + 7 * 9, 9 * 9)),
        ({"stop_once": True}, (8 * 3 + 9, 6 * 3 + 3 * 9, 9 * 9, 9 * 9)),
        ({"max_trials": 2}, (2 * 3, 2 * 3, 2 * 3, 2 * 9)),  # too few for anyone to go on
    ],
)
def test_training_in_all_at_least_as_expected_and_at_most(
    changes: dict[str, Any], amounts: tuple[int, int, int, int]
) -> None:
    found = plan(**ASHA | changes)
    assert (found.least, found.expected, found.most, found.full) == amounts


def test_a_time_metric_is_the_unit() -> None:
    searcher = {"time_metric": "tokens", "max_time": 900, "max_length": 50}
    found = plan(**ASHA | searcher)
    assert found.unit == "tokens"
    assert table(found) == [(300, 6), (900, 3)]


@pytest.mark.parametrize(
    ("pruner", "amounts"),
    [
        ("none", (90, 90, 90)),
        ("MedianPruner", (10, 90, 90)),
        ("asha", (9 * 3 + 9, 7 * 3 + 3 * 9, 90)),
    ],
)
def test_optuna_prunes_or_not(pruner: str, amounts: tuple[int, int, int]) -> None:
    searcher = {"num_rungs": 2, "divisor": 3, "max_length": {"epochs": 9}, "max_trials": 10}
    found = plan(name="optuna", pruner=pruner, **searcher)
    assert (found.least, found.expected, found.most) == amounts


def test_time_is_what_the_trials_take_on_the_places_that_are_there() -> None:
    found = plan(name="random", max_length=100, max_trials=5)
    assert found.seconds(0.1, 1) == (50, 50)
    assert found.seconds(0.1, 2) == (30, 30)
    assert found.seconds(0.1, 5) == (10, 10)
    assert found.seconds(0.1, 64) == (10, 10)


def test_a_search_takes_no_more_places_than_it_may() -> None:
    found = plan(name="random", max_length=100, max_trials=4, max_concurrent_trials=2)
    assert found.seconds(1.0, 4) == (200, 200)


def test_at_best_few_trials_are_trained_on() -> None:
    found = plan(**ASHA, stop_once=True)
    assert found.seconds(2.0, 1) == (66, 90)


def test_trials_of_each_length_are_spread_evenly_over_the_search() -> None:
    found = adaptive(10, 900, divisor=3, max_rungs=10)
    assert table(found) == [(100, 5), (300, 3), (900, 2)]
    # Five places: 100, 300, 900, 100 and 300 begin; of the next, 100, 100 and 900, the last one
    # begins at 200, when a place is free for the third time.
    assert [found.seconds(1.0, places)[1] for places in (3, 4, 5)] == [1400, 1200, 1100]


def test_time_of_very_many_trials_is_their_share() -> None:
    found = plan(name="random", max_length=100, max_trials=10**6, max_concurrent_trials=0)
    assert found.seconds(1.0, 8) == (12_500_000, 12_500_000)


def test_without_room_there_is_no_end() -> None:
    with pytest.raises(ValueError, match="got 0, expected at least 1"):
        plan(**ASHA).seconds(1.0, 0)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 1000),
    order=st.sampled_from(["random", "rising", "falling"]),
    stop_once=st.booleans(),
    max_trials=st.integers(1, 60),
    divisor=st.sampled_from([1.5, 2, 3, 4]),
)
def test_a_search_trains_at_least_and_at_most_what_was_said(
    seed: int, order: str, stop_once: bool, max_trials: int, divisor: float
) -> None:
    config = make_config(
        name="adaptive_asha", max_length=100, max_trials=max_trials, divisor=divisor,
        stop_once=stop_once, max_concurrent_trials=4,
    )  # fmt: skip
    found = preview_of(config)
    generator = random.Random(seed)
    metrics = {"random": lambda _: generator.random(), "rising": float, "falling": lambda i: -i}
    trained = World(config).run(metrics[order])
    assert found.least <= found.expected <= found.most <= found.full
    assert found.least <= sum(trained.values()) <= found.most
    assert len(trained) == found.num_trials


# Ranges and samples

SPACE = {
    "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1, "count": 3},
    "net": {"depth": {"type": "int", "minval": 2, "maxval": 8, "count": 2}, "name": "flat"},
    "act": {"type": "categorical", "vals": ["relu", None]},
    "fixed": {"type": "const", "val": 7},
}


def test_samples_are_what_the_first_trials_of_that_seed_get() -> None:
    config = make_config(name="random", max_trials=9, max_length=4, hyperparameters=SPACE)
    ranges = sample_ranges(config.searcher, config.hyperparameters, 0)
    assert [(each.name, each.words) for each in ranges] == [
        ("lr", "0.0001 to 0.1, even in the exponent"),
        ("net.depth", "2 to 8, whole"),
        ("act", "relu, None"),
    ]
    created = [trial.hparams for trial in World(config).created][:5]
    assert list(ranges[0].samples) == [hparams["lr"] for hparams in created]
    assert list(ranges[1].samples) == [hparams["net"]["depth"] for hparams in created]


def test_a_grid_names_its_values() -> None:
    config = make_config(name="grid", max_length=4, hyperparameters=SPACE)
    lr, depth, act = sample_ranges(config.searcher, config.hyperparameters, 0)
    assert (lr.words, depth.words, act.words) == ("0.0001, 0.003162, 0.1", "2, 8", "relu, None")
    assert lr.samples == (0.0001, 0.0001, 10**-2.5, 10**-2.5, 0.1)
