"""The `optuna` search, and hyperparameters in the form that samplers work on."""

from __future__ import annotations

import json
import math
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from det_jupyter.config import Length
from det_jupyter.errors import ConfigError
from det_jupyter.searcher import (
    Action,
    AskPruner,
    AskSampler,
    Close,
    Create,
    ExitReason,
    Shutdown,
    TrainTo,
)
from det_jupyter.searcher.optuna_space import find_dimensions, to_hparams, to_params
from tests.problems import said
from tests.unit.searcher.searcher_world import World, make_config, make_search
from tests.unit.searcher.test_search import SearchMethodContract, draw_event

SEARCHER: dict[str, Any] = {
    "name": "optuna",
    "max_length": {"epochs": 9},
    "max_trials": 6,
    "max_concurrent_trials": 3,
}
ASHA: dict[str, Any] = {**SEARCHER, "num_rungs": 3, "divisor": 3}
NONE: dict[str, Any] = {**SEARCHER, "pruner": "none"}
PRUNER: dict[str, Any] = {**SEARCHER, "pruner": "MedianPruner"}


class Answered(World):
    """A world in which the sampler answers at once, and the pruner never prunes."""

    def take(self, actions: list[Action]) -> list[Action]:
        """Carry out actions, and answer the questions among them."""
        super().take(actions)
        for action in actions:
            match action:
                case AskSampler(index):
                    self.sample(index)
                case AskPruner(index):
                    self.tell(lambda search, i=index: search.on_judged(i, False))  # type: ignore[misc]  # mypy infers no lambda with a default
        return actions

    def sample(self, index: int) -> list[Action]:
        """The sampler answers."""
        return self.tell(lambda search: search.on_sampled(index, {"lr": 0.1 * index}))


class OptunaContract(SearchMethodContract):
    def make_world(self, *, restarts: bool = False) -> World:
        return Answered(self.make_config(), restarts=restarts)

    def test_it_starts_with_a_trial_that_trains(self) -> None:
        world = self.make_world()
        assert [action for action in world.log if not isinstance(action, AskSampler)][:2] == [
            Create(0, {"lr": 0.0}, 441365315),
            world.targets[0],
        ]


class TestWithAsha(OptunaContract):
    searcher: ClassVar[dict[str, Any]] = ASHA


class TestWithoutPruner(OptunaContract):
    searcher: ClassVar[dict[str, Any]] = NONE | {"smaller_is_better": False}


class TestWithPruner(OptunaContract):
    searcher: ClassVar[dict[str, Any]] = PRUNER | {"max_concurrent_trials": 0}


CONTRACTS: list[type[OptunaContract]] = [TestWithAsha, TestWithoutPruner, TestWithPruner]


@pytest.mark.parametrize("contract", CONTRACTS)
@settings(max_examples=20)
@given(data=st.data())
def test_in_a_random_world_a_search_with_questions_keeps_its_promises_and_ends(
    contract: type[OptunaContract], data: st.DataObject
) -> None:
    world, twin = contract().make_world(), contract().make_world(restarts=True)
    for _ in range(data.draw(st.integers(0, 40), label="events")):
        event = None if world.is_shut else draw_event(data, world)
        if event is not None:
            assert event(world) == event(twin)
            assert world.search.view() == twin.search.view()
    world.end_closed()
    world.run(lambda index: index)
    assert world.search.progress == 1


def start(searcher: dict[str, Any]) -> World:
    """Return a world in which the first questions to the sampler are answered."""
    world = World(make_config(**searcher))
    for index in range(3):
        world.tell(lambda search, i=index: search.on_sampled(i, {"lr": i}))  # type: ignore[misc]  # as above
    return world


# Asking for trials


def test_at_first_there_are_as_many_questions_as_trials_may_be_at_work() -> None:
    world = World(make_config(**NONE))
    assert world.log == [AskSampler(0), AskSampler(1), AskSampler(2)]
    assert world.search.pending() == [AskSampler(0), AskSampler(1), AskSampler(2)]
    assert world.search.progress == 0


def test_an_answer_makes_the_trial_with_the_experiment_s_next_seed() -> None:
    world = World(make_config(**NONE))
    assert world.search.on_sampled(0, {"lr": 0.5}) == [
        Create(0, {"lr": 0.5}, 441365315),
        TrainTo(0, Length("epochs", 9), is_last=True),
    ]
    assert world.search.pending() == [AskSampler(1), AskSampler(2)]


def test_trials_are_made_in_the_order_of_the_questions() -> None:
    search = World(make_config(**NONE)).search
    assert search.on_sampled(1, {"lr": 1}) == []
    assert search.pending() == [AskSampler(0), AskSampler(2)]
    created = [a for a in search.on_sampled(0, {"lr": 0}) if isinstance(a, Create)]
    assert [(create.index, create.hparams) for create in created] == [
        (0, {"lr": 0}),
        (1, {"lr": 1}),
    ]


def test_a_question_follows_each_trial_that_is_over_not_one_that_is_about_to_be() -> None:
    world = start(NONE)
    assert world.reach(1, 0.5) == [Close(1)]
    assert world.exit(1) == [AskSampler(3)]
    assert world.exit(0, ExitReason.ERRORED) == [AskSampler(4)]


def test_zero_concurrent_trials_means_all_at_once() -> None:
    world = World(make_config(**NONE | {"max_concurrent_trials": 0}))
    assert world.log == [AskSampler(index) for index in range(6)]


def test_only_invalid_hyperparameters_are_replaced() -> None:
    world = Answered(make_config(**NONE))
    world.exit(0, ExitReason.INVALID_HP)
    world.exit(1, ExitReason.ERRORED)
    world.run(lambda index: index)
    assert len(world.created) == 7


# Rungs


def test_with_asha_a_trial_stops_or_goes_on_at_once() -> None:
    world = start(ASHA)
    assert [target.length.amount for target in world.targets.values()] == [1, 1, 1]
    assert world.reach(0, 0.5) == [TrainTo(0, Length("epochs", 3), is_last=False)]
    assert world.reach(1, 0.6) == [Close(1)]
    assert world.reach(2, 0.4) == [TrainTo(2, Length("epochs", 3), is_last=False)]
    assert world.reach(2, 0.3) == [TrainTo(2, Length("epochs", 9), is_last=True)]
    assert world.reach(2, 0.2) == [Close(2)]
    search = world.search
    assert [search.was_stopped(index) for index in range(3)] == [False, True, False]
    assert search.rung_metrics(2) == [0.4, 0.3, 0.2]
    assert (search.bracket_of(2), search.view().divisor) == (0, 3)
    (bracket,) = search.view().brackets
    assert [(rung.length, rung.num_results, rung.num_promoted) for rung in bracket.rungs] == [
        ({"epochs": 1}, 3, 2), ({"epochs": 3}, 1, 1), ({"epochs": 9}, 1, 0),
    ]  # fmt: skip


def test_a_trial_that_fails_counts_as_the_worst_at_its_rung() -> None:
    world = start(ASHA)
    world.exit(0, ExitReason.ERRORED)
    assert world.reach(1, 0.5) == [TrainTo(1, Length("epochs", 3), is_last=False)]
    assert world.search.rung_metrics(0) == [None]


def test_invalid_hyperparameters_leave_the_rungs() -> None:
    world = start(ASHA)
    world.reach(0, 0.1)
    world.exit(0, ExitReason.INVALID_HP)
    assert world.search.view().brackets[0].rungs[0].num_results == 0
    assert world.reach(1, 0.5) == [TrainTo(1, Length("epochs", 3), is_last=False)]


@pytest.mark.parametrize("searcher", [NONE, PRUNER])
def test_without_asha_there_are_no_rungs_to_show(searcher: dict[str, Any]) -> None:
    world = start(searcher)
    world.reach(0, 0.5)
    assert world.search.view().brackets == []
    assert world.search.rung_metrics(0) == []
    assert world.search.bracket_of(0) is None
    assert not world.search.was_stopped(0)


# The pruner


def test_every_report_is_judged_one_question_at_a_time() -> None:
    world = start(PRUNER)
    assert world.report(0, None, 0.5) == [AskPruner(0)]
    assert world.report(0, None, 0.4) == []
    assert world.report(0, None, 0.3) == []
    assert world.report(1, None, math.nan) == [AskPruner(1)]
    assert world.search.pending() == [AskPruner(0), AskPruner(1)]
    assert world.search.on_judged(0, False) == [AskPruner(0)], "there is newer news"
    assert world.search.on_judged(0, False) == []
    assert world.search.pending() == [AskPruner(1)]


def test_a_pruned_trial_is_closed_and_followed() -> None:
    world = start(PRUNER)
    world.report(0, None, 0.5)
    assert world.tell(lambda search: search.on_judged(0, True)) == [Close(0)]
    assert world.search.was_stopped(0)
    assert world.exit(0) == [AskSampler(3)]
    assert world.search.on_judged(0, True) == []


def test_an_answer_that_nobody_asked_for_prunes_nothing() -> None:
    search = start(PRUNER).search
    assert search.on_judged(0, True) == []
    assert start(NONE).search.on_judged(0, True) == []


@pytest.mark.parametrize("end", ["exit", "reach"])
def test_who_is_over_is_not_asked_about_any_more(end: str) -> None:
    world = start(PRUNER)
    world.report(0, None, 0.5)
    if end == "exit":
        world.exit(0, ExitReason.ERRORED)
    else:
        world.reach(0, 0.5)
    assert AskPruner(0) not in world.search.pending()


@pytest.mark.parametrize("searcher", [ASHA, NONE])
def test_without_a_pruner_of_optuna_s_reports_ask_nothing(searcher: dict[str, Any]) -> None:
    world = start(searcher)
    assert world.report(0, None, 0.5) == []


def test_questions_survive_a_restart() -> None:
    world = start(PRUNER)
    world.exit(0)
    world.report(1, None, 0.5)
    world.report(1, None, 0.4)
    snapshot = json.loads(json.dumps(world.search.snapshot()))
    again = make_search(world.config, snapshot)
    assert again.pending() == [AskSampler(3), AskPruner(1)]
    assert again.on_judged(1, False) == [AskPruner(1)]


# Change


def test_more_trials_are_asked_for_when_there_is_room() -> None:
    world = Answered(make_config(**NONE | {"max_trials": 3}))
    assert world.change(max_trials=5) == []
    assert world.change(max_concurrent_trials=4) == [AskSampler(3)]
    world.run(lambda index: index)
    assert len(world.created) == 5


@pytest.mark.parametrize("searcher", [NONE, PRUNER])
def test_a_longer_length_is_the_new_target_of_who_is_not_closed(searcher: dict[str, Any]) -> None:
    world = start(searcher)
    world.reach(0, 0.5)
    assert world.change(max_length=Length("epochs", 20)) == [
        TrainTo(1, Length("epochs", 20), is_last=True),
        TrainTo(2, Length("epochs", 20), is_last=True),
    ]


def test_with_asha_a_longer_length_is_a_new_rung_on_top() -> None:
    world = start(ASHA)
    world.reach(0, 0.5)
    world.reach(0, 0.5)
    assert world.change(max_length=Length("epochs", 20)) == [
        TrainTo(0, Length("epochs", 9), is_last=False)
    ]
    assert world.reach(0, 0.5) == [TrainTo(0, Length("epochs", 20), is_last=True)]


@pytest.mark.parametrize(
    ("length", "why"),
    [
        (Length("epochs", 8), "expected at least 9 epochs"),
        (Length("batches", 10), "but this search counts in epochs: use these"),
    ],
)
def test_a_length_that_is_shorter_or_in_another_unit_is_refused(length: Length, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        start(ASHA).change(max_length=length)
    assert said(caught.value.problems) == [f"searcher.max_length: got {length}, {why}"]


def test_the_same_length_changes_nothing() -> None:
    assert start(ASHA).change(max_length=Length("epochs", 9)) == []


def test_changed_limits_are_in_the_snapshot() -> None:
    world = start(NONE | {"max_trials": 4})
    world.change(max_trials=9, max_length=Length("epochs", 20), max_concurrent_trials=4)
    again = make_search(world.config, world.search.snapshot())
    assert again.view().max_trials == 9
    assert again.on_sampled(3, {})[1] == TrainTo(3, Length("epochs", 20), is_last=True)


def test_the_end_comes_when_all_are_over() -> None:
    world = Answered(make_config(**NONE | {"max_trials": 1}))
    world.reach(0, 0.5)
    assert world.exit(0) == [Shutdown()]


# The space

SPACE: dict[str, Any] = {
    "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
    "net": {
        "depth": {"type": "int", "minval": 2, "maxval": 8, "count": 3},
        "a.b": {"type": "double", "minval": 0, "maxval": 1},
        "a": {"b": {"type": "double", "minval": 2, "maxval": 3}},
        "act": {
            "type": "categorical",
            "vals": ["relu", None, [1, 2], {"k": 1}, True, 1, math.nan],
        },
    },
    "width": 64,
    "kind": {"type": "const", "val": [3]},
    "shrink": {"type": "log", "base": 0.5, "minval": 1, "maxval": 3},
}


def test_a_space_is_flat_and_numbers() -> None:
    assert [(dimension.name, dimension.bounds) for dimension in find_dimensions(SPACE)] == [
        ("lr", (0.0001, 0.1)),
        ("net.a.b", (2.0, 3.0)),
        (r"net.a\.b", (0.0, 1.0)),
        ("net.act", (0, 6)),
        ("net.depth", (2, 8)),
        ("shrink", (0.125, 0.5)),
    ]


NUMBERS: dict[str, float] = {
    "lr": 0.01, "net.a.b": 2.5, r"net.a\.b": 0.5, "net.act": 2, "net.depth": 4, "shrink": 0.25,
}  # fmt: skip


def test_numbers_become_hyperparameters_in_their_places() -> None:
    assert to_hparams(SPACE, NUMBERS) == {
        "lr": 0.01,
        "net": {"depth": 4, "a.b": 0.5, "a": {"b": 2.5}, "act": [1, 2]},
        "width": 64,
        "kind": [3],
        "shrink": 0.25,
    }


@pytest.mark.parametrize("place", range(7))
def test_the_way_there_and_back_is_faithful_for_any_value(place: int) -> None:
    numbers = NUMBERS | {"net.act": place}
    assert to_params(SPACE, to_hparams(SPACE, numbers)) == numbers


@pytest.mark.parametrize(
    ("key", "spec"),
    [
        ("lr", {"type": "log", "base": 10, "minval": -4, "maxval": -3}),
        ("width", 32),
        ("width", {"type": "const", "val": True}),
        ("net", {"act": {"type": "categorical", "vals": [[2, 1]]}}),
        ("new", 1),
    ],
)
def test_a_sample_outside_a_narrowed_space_has_no_numbers(key: str, spec: Any) -> None:
    assert to_params(SPACE | {key: spec}, to_hparams(SPACE, NUMBERS)) is None


def test_a_sample_inside_a_narrowed_space_has_numbers_of_that_space() -> None:
    old = {"act": {"type": "categorical", "vals": ["a", "b", 3]}}
    new = {"act": {"type": "categorical", "vals": [3.0, "b"]}}
    assert to_params(new, to_hparams(old, {"act": 1})) == {"act": 1}
    assert to_params(new, to_hparams(old, {"act": 2})) == {"act": 0}
    assert to_params({"act": "b"}, to_hparams(old, {"act": 1})) == {}
