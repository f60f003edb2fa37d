"""Changes of the limits and hyperparameters of a running search."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.config import Length
from det_jupyter.errors import ConfigError
from det_jupyter.searcher import Close, Create, ExitReason, Shutdown, TrainTo
from tests.problems import said
from tests.unit.searcher.searcher_world import World, make_config

RANDOM: dict[str, Any] = {"name": "random", "max_length": 100, "max_trials": 4}
ASHA: dict[str, Any] = {
    "name": "async_halving", "num_rungs": 2, "divisor": 2, "max_length": {"epochs": 4},
    "max_trials": 4, "max_concurrent_trials": 2,
}  # fmt: skip
SPACE: dict[str, Any] = {
    "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
    "depth": {"type": "int", "minval": 1, "maxval": 8},
    "act": {"type": "categorical", "vals": ["relu", "gelu", True]},
    "sgd": {"momentum": {"type": "double", "minval": 0, "maxval": 1}, "nesterov": True},
}


def make(restarts: bool = True, **searcher: Any) -> World:
    return World(make_config(SPACE, **searcher), restarts=restarts)


def epochs(index: int, amount: int, *, is_last: bool = False) -> TrainTo:
    return TrainTo(index, Length("epochs", amount), is_last)


def problems_of(world: World, **changes: Any) -> list[str]:
    before = world.search.snapshot()
    with pytest.raises(ConfigError) as caught:
        world.change(**changes)
    assert world.search.snapshot() == before
    return said(caught.value.problems)


def created(world: World) -> int:
    return len(world.created)


class TestFullLength:
    def test_more_trials_are_made(self) -> None:
        world = make(**RANDOM)
        assert created(world) == 4
        world.change(max_trials=6)
        assert created(world) == 6
        assert world.search.view().max_trials == 6

    def test_progress_stays_where_it_is(self) -> None:
        world = make(**RANDOM)
        for index in range(3):
            world.exit(index)
        world.change(max_trials=60)
        assert world.search.progress == 0.75

    def test_fewer_at_a_time_lets_those_that_run_go_on(self) -> None:
        world = make(**RANDOM | {"max_concurrent_trials": 3})
        assert world.change(max_concurrent_trials=1) == []
        assert world.exit(0) == []
        assert world.exit(1) == []
        assert len(world.exit(2)) == 2

    def test_more_at_a_time_begin_at_once(self) -> None:
        world = make(**RANDOM | {"max_concurrent_trials": 1})
        world.change(max_concurrent_trials=0)
        assert created(world) == 4

    def test_a_longer_length_is_told_to_those_that_train(self) -> None:
        world = make(**RANDOM | {"max_concurrent_trials": 3})
        world.reach(0, 0.5)
        longer = Length("batches", 200)
        assert world.change(max_length=longer) == [
            TrainTo(1, longer, is_last=True),
            TrainTo(2, longer, is_last=True),
        ]
        assert world.exit(0)[1] == TrainTo(3, longer, is_last=True)

    def test_a_narrower_space_holds_for_the_trials_to_come(self) -> None:
        world = make(**RANDOM | {"max_concurrent_trials": 1})
        world.change(hyperparameters=SPACE | {"depth": 3, "lr": SPACE["lr"] | {"maxval": -3}})
        world.exit(0)
        hparams = world.created[1].hparams
        assert hparams["depth"] == 3
        assert 1e-4 <= hparams["lr"] <= 1e-3

    def test_nothing_changes_nothing(self) -> None:
        world = make(**RANDOM)
        assert world.change() == []
        assert world.change(max_trials=4, max_length=Length("batches", 100)) == []


class TestAsha:
    def test_more_trials_are_made_though_all_rest(self) -> None:
        world = make(**ASHA | {"max_trials": 2, "stop_once": True})
        world.reach(0, 0.5)
        assert world.reach(1, 0.6) == [Close(1)]
        actions = world.change(max_trials=3)
        assert isinstance(actions[0], Create)
        assert actions[1:] == [epochs(2, 2)]
        world.run(lambda index: index)
        assert created(world) == 3

    def test_a_trial_that_was_closed_is_not_promoted_by_those_that_come_later(self) -> None:
        world = make(**ASHA | {"max_trials": 3, "max_concurrent_trials": 1})
        world.reach(0, 0.3)
        assert world.reach(1, 0.2) == [epochs(1, 4, is_last=True)]
        world.exit(1, ExitReason.CANCELED)
        assert world.reach(2, 0.1) == [epochs(2, 4, is_last=True), Close(0)]
        actions = world.change(max_trials=4, max_concurrent_trials=2)
        assert actions[1:] == [epochs(3, 2)]
        assert world.reach(3, 0.9) == [Close(3)]
        world.end_closed()
        assert world.reach(2, 0.1) == [Close(2)]
        assert world.exit(2) == [Shutdown()]

    def test_a_longer_length_is_a_new_top_rung(self) -> None:
        world = make(**ASHA)
        world.reach(0, 0.5)
        world.reach(1, 0.4)
        assert world.targets[1] == epochs(1, 4, is_last=True)
        assert world.change(max_length=Length("epochs", 8)) == [epochs(1, 4)]
        assert [rung.length for rung in world.search.view().brackets[0].rungs] == [
            {"epochs": 2}, {"epochs": 4}, {"epochs": 8},
        ]  # fmt: skip
        world.reach(1, 0.4)
        assert world.search.rung_metrics(1) == [0.4, 0.4]
        world.run(lambda index: 1 - 0.1 * index)
        assert max(world.trained.values()) == 8

    def test_the_new_rung_is_that_of_the_highest_brackets(self) -> None:
        searcher: dict[str, Any] = {
            "name": "adaptive_asha",
            "max_length": {"epochs": 16},
            "max_trials": 16,
        }
        world = make(**searcher)
        world.change(max_length=Length("epochs", 32))
        lengths = [
            [rung.length["epochs"] for rung in bracket.rungs]
            for bracket in world.search.view().brackets
        ]
        assert lengths == [[1, 4, 16, 32], [4, 16]]
        world.run(lambda index: index % 7)

    def test_more_trials_are_spread_over_the_brackets(self) -> None:
        searcher: dict[str, Any] = {
            "name": "adaptive_asha",
            "max_length": {"epochs": 16},
            "max_trials": 16,
        }
        world = make(**searcher)
        assert [b.max_trials for b in world.search.view().brackets] == [12, 4]
        world.change(max_trials=32)
        assert [b.max_trials for b in world.search.view().brackets] == [24, 8]
        world.change(max_concurrent_trials=10)
        world.run(lambda index: index % 7)
        assert created(world) == 32

    def test_as_many_at_a_time_as_the_rungs_call_for_grow_with_the_trials(self) -> None:
        world = make(**ASHA | {"max_trials": 1, "max_concurrent_trials": 0})
        assert created(world) == 1
        world.change(max_trials=10)
        assert created(world) == 2


@pytest.mark.parametrize(
    ("searcher", "changes", "problems"),
    [
        (RANDOM, {"max_trials": 3, "max_length": Length("epochs", 200)},
         ["searcher.max_length: got 200 epochs, but this search counts in batches: use these",
          "searcher.max_trials: got 3, expected at least 4 and at most 10000000"]),
        (RANDOM, {"max_trials": 10**15},
         [f"searcher.max_trials: got {10**15}, expected at least 4 and at most 10000000"]),
        (RANDOM, {"max_length": Length("batches", 99)},
         ["searcher.max_length: got 99 batches, expected at least 100 batches"]),
        (RANDOM, {"max_concurrent_trials": -1},
         ["searcher.max_concurrent_trials: got -1, expected at least 0"]),
        (ASHA, {"max_length": Length("epochs", 3)},
         ["searcher.max_length: got 3 epochs, expected at least 4 epochs"]),
        ({"name": "single", "max_length": 5}, {"max_trials": 5, "max_concurrent_trials": 2},
         ["searcher.max_concurrent_trials: searcher single does not have it",
          "searcher.max_trials: searcher single does not have it"]),
        ({"name": "single", "max_length": 5}, {"hyperparameters": {}},
         ["hyperparameters: searcher single has chosen them all; they cannot change"]),
        ({"name": "adaptive_asha", "time_metric": "epochs", "max_time": 9, "max_trials": 4},
         {"max_length": Length("epochs", 20)},
         ["searcher.max_length: got 20 epochs, but this search measures training by epochs up "
          "to max_time, which cannot be changed"]),
    ],
)  # fmt: skip
def test_what_cannot_be_changed_is_refused_and_nothing_changes(
    searcher: dict[str, Any], changes: dict[str, Any], problems: list[str]
) -> None:
    assert problems_of(make(restarts=False, **searcher), **changes) == problems


def test_a_grid_keeps_its_points() -> None:
    space = {"depth": {"type": "int", "minval": 1, "maxval": 8, "count": 2}}
    world = World(make_config(space, name="grid", max_length=5))
    assert problems_of(world, max_trials=5, hyperparameters={}) == [
        "hyperparameters: searcher grid has chosen them all; they cannot change",
        "searcher.max_trials: searcher grid does not have it",
    ]


def test_a_search_that_is_over_cannot_be_changed() -> None:
    world = make(restarts=False, **{"name": "single", "max_length": 5})
    world.exit(0, ExitReason.ERRORED)
    assert problems_of(world, max_length=Length("batches", 10)) == [
        "searcher: the search is over; submit a new experiment"
    ]


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"depth": {"type": "int", "minval": 0, "maxval": 8}}, "depth"),
        ({"depth": {"type": "int", "minval": 8, "maxval": 8}}, "depth.minval"),
        ({"depth": {"type": "double", "minval": 1, "maxval": 8}}, "depth"),
        ({"depth": 9}, "depth"),
        ({"depth": 2.5}, "depth"),
        ({"depth": True}, "depth"),
        ({"lr": {"type": "log", "base": 2, "minval": -4, "maxval": -1}}, "lr"),
        ({"lr": 1.0}, "lr"),
        ({"act": {"type": "categorical", "vals": ["relu", "tanh"]}}, "act"),
        ({"act": 1}, "act"),
        ({"sgd": 0.1}, "sgd"),
        ({"sgd": {"momentum": 0.5, "nesterov": False}}, "sgd.nesterov"),
        ({"sgd": {"momentum": 0.5}}, "sgd.nesterov"),
        ({"adam": 1}, "adam"),
    ],
)
def test_a_space_that_is_not_narrower_is_refused(changes: dict[str, Any], place: str) -> None:
    (problem,) = problems_of(make(restarts=False, **RANDOM), hyperparameters=SPACE | changes)
    assert problem.startswith(f"hyperparameters.{place}: ")


@pytest.mark.parametrize(
    "changes",
    [
        {"depth": {"type": "int", "minval": 2, "maxval": 8}},
        {"depth": {"type": "const", "val": 8}},
        {"depth": 8},
        {"lr": 0.01},
        {"act": {"type": "categorical", "vals": ["gelu", True]}},
        {"act": "gelu"},
        {"sgd": {"momentum": 0.5, "nesterov": True}},
    ],
)
def test_a_narrower_space_is_taken(changes: dict[str, Any]) -> None:
    assert make(**RANDOM).change(hyperparameters=SPACE | changes) == []
