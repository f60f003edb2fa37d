"""The contract of searches: one conformance class, run over all methods."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from det_jupyter.config import ExperimentConfig, Length
from det_jupyter.searcher import (
    Action,
    Close,
    Create,
    ExitReason,
    Shutdown,
    TrainTo,
)
from det_jupyter.searcher.grid import GridSearcher
from det_jupyter.searcher.trials import Trials
from tests.unit.searcher.searcher_world import METRICS, World, make_config, make_search

EARLY = [reason for reason in ExitReason if reason is not ExitReason.COMPLETED]


class SearchMethodContract:
    """What holds for every search, however its trials fare.

    `searcher` is its section of the configuration; `hyperparameters` its space.
    """

    searcher: ClassVar[dict[str, Any]]
    hyperparameters: ClassVar[dict[str, Any] | None] = None

    def make_config(self) -> ExperimentConfig:
        return make_config(self.hyperparameters, **self.searcher)

    def make_world(self, *, restarts: bool = False) -> World:
        return World(self.make_config(), restarts=restarts)

    def test_it_starts_with_a_trial_that_trains(self) -> None:
        world = self.make_world()
        assert isinstance(world.log[0], Create)
        assert isinstance(world.log[1], TrainTo)
        assert world.search.view().num_created == len(world.created)
        assert world.search.view().num_closed == 0

    def test_same_seed_same_trials(self) -> None:
        one, other = self.make_world(), self.make_world()
        one.run(lambda index: index % 5)
        other.run(lambda index: index % 5)
        assert one.log == other.log

    def test_it_ends_when_all_trials_are_over(self) -> None:
        world = self.make_world()
        world.run(lambda index: 1 / (index + 1))
        assert world.log[-1] == Shutdown()
        assert world.search.progress == 1
        view = world.search.view()
        assert view.num_created == view.num_closed == view.max_trials == len(world.created)

    @pytest.mark.parametrize("metric", METRICS)
    def test_it_ends_whatever_the_metrics_are(self, metric: float | None) -> None:
        world = self.make_world(restarts=True)
        world.run(lambda _: metric)
        assert world.search.progress == 1

    @pytest.mark.parametrize("reason", EARLY)
    def test_it_ends_though_no_trial_gets_anywhere(self, reason: ExitReason) -> None:
        world = self.make_world()
        while not world.is_shut:
            world.exit(next(iter(world.targets)), reason)
        assert world.search.progress == 1

    def test_what_is_said_twice_or_too_late_changes_nothing(self) -> None:
        world = self.make_world()
        first = 0
        world.exit(first, ExitReason.ERRORED)
        before = world.search.snapshot()
        assert world.exit(first, ExitReason.INVALID_HP) == []
        assert world.search.on_target_reached(first, 0.5) == []
        assert world.search.on_report(first, 1e9, 0.5) == []
        assert world.search.on_exited(10**6, ExitReason.ERRORED) == []
        assert world.search.on_target_reached(10**6, 0.5) == []
        assert world.search.on_sampled(first, {}) == []
        assert world.search.on_judged(first, True) == []
        assert world.search.snapshot() == before

    def test_nothing_follows_the_end(self) -> None:
        world = self.make_world()
        world.run(lambda index: index)
        assert world.search.on_exited(0, ExitReason.COMPLETED) == []
        assert world.search.pending() == []

    def test_a_snapshot_is_json_and_whole(self) -> None:
        world = self.make_world()
        world.reach(0, None)
        snapshot = world.search.snapshot()
        text = json.dumps(snapshot, allow_nan=False)
        assert make_search(self.make_config(), json.loads(text)).snapshot() == snapshot


class TestSingle(SearchMethodContract):
    searcher: ClassVar[dict[str, Any]] = {"name": "single", "max_length": {"epochs": 3}}

    def test_one_trial_trains_to_its_full_length(self) -> None:
        world = self.make_world()
        assert world.log == [
            Create(0, {"lr": 0.004430375245218264, "global_batch_size": 64}, 192771779),
            TrainTo(0, Length("epochs", 3), is_last=True),
        ]
        assert world.reach(0, 0.5) == [Close(0)]
        assert not world.search.was_stopped(0)
        assert world.exit(0) == [Shutdown()]

    @pytest.mark.parametrize("reason", ExitReason)
    def test_however_its_trial_ends_the_search_is_over(self, reason: ExitReason) -> None:
        assert self.make_world().exit(0, reason) == [Shutdown()]

    def test_it_has_no_brackets(self) -> None:
        search = self.make_world().search
        assert search.bracket_of(0) is None
        assert search.rung_metrics(0) == []
        assert search.view().brackets == []
        assert search.time_metric is None


class TestRandom(SearchMethodContract):
    searcher: ClassVar[dict[str, Any]] = {
        "name": "random", "max_length": 100, "max_trials": 7, "max_concurrent_trials": 3,
    }  # fmt: skip

    def test_a_trial_follows_each_that_is_over(self) -> None:
        world = self.make_world()
        assert [type(action) for action in world.log] == [Create, TrainTo] * 3
        assert world.reach(1, 0.5) == [Close(1)]
        create, target = world.exit(1)
        assert isinstance(create, Create)
        assert create.index == 3
        assert target == TrainTo(3, Length("batches", 100), is_last=True)
        assert world.search.progress == pytest.approx(1 / 7)

    def test_invalid_hyperparameters_are_replaced(self) -> None:
        world = self.make_world()
        world.exit(0, ExitReason.INVALID_HP)
        world.exit(1, ExitReason.ERRORED)
        world.run(lambda index: index)
        assert len(world.created) == 8

    def test_a_space_that_holds_nothing_valid_is_given_up(self) -> None:
        world = self.make_world()
        while not world.is_shut:
            world.exit(next(iter(world.targets)), ExitReason.INVALID_HP)
        assert len(world.created) == 107


class TestRandomAllAtOnce(SearchMethodContract):
    searcher: ClassVar[dict[str, Any]] = {
        "name": "random", "max_length": 100, "max_trials": 5, "max_concurrent_trials": 0,
    }  # fmt: skip

    def test_all_trials_are_made_at_once(self) -> None:
        assert len(self.make_world().created) == 5


class TestGrid(SearchMethodContract):
    searcher: ClassVar[dict[str, Any]] = {
        "name": "grid", "max_length": {"records": 5}, "max_concurrent_trials": 2,
    }  # fmt: skip
    hyperparameters: ClassVar[dict[str, Any] | None] = {
        "a": {"type": "int", "minval": 0, "maxval": 2, "count": 3},
        "b": {"type": "categorical", "vals": ["x", "y"]},
        "global_batch_size": 1,
    }


HALVING: dict[str, Any] = {"max_length": {"epochs": 9}, "max_trials": 9, "divisor": 3}


class TestAsyncHalving(SearchMethodContract):
    searcher: ClassVar[dict[str, Any]] = {
        "name": "async_halving", "num_rungs": 3, "max_concurrent_trials": 2, **HALVING,
    }  # fmt: skip


class TestAsyncHalvingThatStopsOnce(SearchMethodContract):
    searcher: ClassVar[dict[str, Any]] = {
        "name": "async_halving", "num_rungs": 3, "max_concurrent_trials": 3, "stop_once": True,
        "smaller_is_better": False, **HALVING,
    }  # fmt: skip


class TestAdaptiveAsha(SearchMethodContract):
    searcher: ClassVar[dict[str, Any]] = {
        "name": "adaptive_asha", "max_concurrent_trials": 4, "smaller_is_better": False,
        "mode": "conservative", **HALVING,
    }  # fmt: skip


class TestAdaptiveAshaInTime(SearchMethodContract):
    searcher: ClassVar[dict[str, Any]] = {
        "name": "adaptive_asha", "time_metric": "epochs", "max_time": 9, "max_trials": 9,
        "divisor": 3, "max_concurrent_trials": 0,
    }  # fmt: skip


def resting(world: World) -> list[int]:
    """Return the trials that neither train nor were closed."""
    gone = {*world.targets, *world.closed, *world.over}
    return [index for index in range(len(world.created)) if index not in gone]


KINDS = ["reach", "reach", "reach", "report", "exit", "exit", "leave", "kill", "change"]


def draw_change(data: st.DataObject, world: World) -> Callable[[World], list[Action]] | None:
    """Return a change of the search's limits; None if it would be refused."""
    searcher = world.config.searcher
    changes: dict[str, Any] = {}
    if searcher.name != "single":
        changes["max_concurrent_trials"] = data.draw(st.integers(0, 5))
    if searcher.name not in ("single", "grid"):
        changes["max_trials"] = world.search.view().max_trials + data.draw(st.integers(0, 3))
    if world.search.time_metric is None and world.full is not None:
        amount = world.full.amount + data.draw(st.integers(0, 50))
        changes["max_length"] = Length(world.full.unit, amount)
    return lambda world: world.change(**changes)


def draw_event(data: st.DataObject, world: World) -> Callable[[World], list[Action]] | None:
    """Return something that may happen now to a trial; None if there is none for it."""
    kind = data.draw(st.sampled_from(KINDS), label="event")
    if kind == "change":
        return draw_change(data, world)
    trials = {
        "reach": sorted(world.targets),
        "report": sorted(world.targets),
        "leave": sorted(world.targets),
        "exit": sorted(set(world.closed) - world.over),
        "kill": resting(world),
    }[kind]
    if not trials:
        return None
    index = data.draw(st.sampled_from(trials), label="trial")
    metric = data.draw(st.sampled_from(METRICS), label="metric")
    match kind:
        case "reach":
            return lambda world: world.reach(index, metric)
        case "report":
            time = data.draw(st.sampled_from([0.5, 1, 2, 3, 8.5, 9, math.nan, None]))
            return lambda world: world.report(index, time, metric)
        case "exit":
            reason = data.draw(st.sampled_from(ExitReason))
        case "leave":
            reason = data.draw(st.sampled_from(EARLY))
        case _:
            reason = ExitReason.CANCELED
    return lambda world: world.exit(index, reason)


@pytest.mark.parametrize("contract", SearchMethodContract.__subclasses__())
@settings(max_examples=12)
@given(data=st.data())
def test_in_a_random_world_a_search_keeps_its_promises_and_ends(
    contract: type[SearchMethodContract], data: st.DataObject
) -> None:
    world = contract().make_world()
    twin = contract().make_world(restarts=True)  # made anew from a snapshot before every event
    for _ in range(data.draw(st.integers(0, 60), label="events")):
        event = None if world.is_shut else draw_event(data, world)
        if event is not None:
            assert event(world) == event(twin)
            assert world.search.view() == twin.search.view()
            assert world.search.progress == twin.search.progress
    while not world.is_shut:
        assert world.targets or set(world.closed) - world.over, "all wait for each other"
        for index in list(world.targets)[:1]:
            world.reach(index, 0.5)
        world.end_closed()
    assert world.search.progress == 1


@pytest.mark.parametrize(("max_trials", "limit"), [(1, 100), (10, 100), (11, 110), (50, 500)])
def test_more_invalid_trials_are_replaced_in_a_larger_search(max_trials: int, limit: int) -> None:
    trials = Trials({"lr": 0.1}, 0)
    trials.create()
    assert [trials.replace(0, max_trials) for _ in range(limit + 2)] == [
        *[True] * limit, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("searcher", "is_endless"),
    [({}, True), ({"max_length": None}, True), ({"max_length": {"batches": 5}}, False)],
)
def test_a_search_without_a_length_has_no_end(searcher: dict[str, Any], is_endless: bool) -> None:
    assert GridSearcher.is_endless(searcher) == is_endless


def test_trials_that_failed_do_not_count_before_all_have_a_result() -> None:
    config = make_config(
        name="async_halving", num_rungs=2, divisor=2, max_trials=4, max_length=100,
        max_concurrent_trials=1,
    )  # fmt: skip
    world, seen = World(config), list[float]()
    while not world.is_shut:
        world.exit(next(iter(world.targets)), ExitReason.ERRORED)
        seen.append(world.search.progress)
    assert seen == pytest.approx([1 / 4.8, 2 / 4.8, 3 / 4.8, 1.0])
