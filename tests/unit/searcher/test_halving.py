"""ASHA in its three forms, and searches of several brackets."""

from __future__ import annotations

import math
from typing import Any

import pytest

from det_jupyter.config import Length
from det_jupyter.searcher import Action, Close, Create, ExitReason, Shutdown, TrainTo
from det_jupyter.searcher.adaptive_asha import (
    AdaptiveAshaSearcher,
    bracket_max_concurrent,
    bracket_max_trials,
)
from det_jupyter.searcher.async_halving import AsyncHalvingSearcher
from tests.unit.searcher.searcher_world import World, make_config


def asha(**changes: Any) -> World:
    """Return a search with rungs of 1, 3 and 9 epochs, three trials at work at a time."""
    searcher: dict[str, Any] = {
        "name": "async_halving", "num_rungs": 3, "divisor": 3, "max_length": {"epochs": 9},
        "max_trials": 9, "max_concurrent_trials": 3,
    }  # fmt: skip
    return World(make_config(**(searcher | changes)))


def to(index: int, epochs: int, *, is_last: bool = False) -> TrainTo:
    return TrainTo(index, Length("epochs", epochs), is_last)


def brief(actions: list[Action]) -> list[Any]:
    """Return actions with a new trial's number alone."""
    return [action.index if isinstance(action, Create) else action for action in actions]


class TestPromotion:
    def test_it_starts_with_as_many_trials_as_may_be_at_work(self) -> None:
        assert brief(asha().log) == [0, to(0, 1), 1, to(1, 1), 2, to(2, 1)]

    @pytest.mark.parametrize(
        ("changes", "number"),
        [({}, 9), ({"max_trials": 4}, 4), ({"num_rungs": 2}, 3), ({"num_rungs": 1}, 1)],
    )
    def test_it_may_begin_with_as_many_as_the_rungs_call_for(
        self, changes: dict[str, Any], number: int
    ) -> None:
        assert len(asha(max_concurrent_trials=0, **changes).created) == number

    def test_a_trial_rests_until_it_is_among_the_best_third(self) -> None:
        world = asha()
        assert brief(world.reach(0, 0.5)) == [3, to(3, 1)]
        assert brief(world.reach(1, 0.6)) == [4, to(4, 1)]
        assert brief(world.reach(2, 0.7)) == [to(0, 3)]  # room for one of three: the oldest rests
        assert world.search.rung_metrics(0) == [0.5]
        assert brief(world.reach(0, 0.4)) == [5, to(5, 1)]
        assert world.search.rung_metrics(0) == [0.5, 0.4]

    def test_a_trial_that_is_among_the_best_goes_on_at_once(self) -> None:
        world = asha()
        world.reach(0, 0.5)
        world.reach(1, 0.6)
        assert world.reach(2, 0.1) == [to(2, 3)]
        assert world.reach(3, 0.05) == [to(3, 3)]  # and so does one that pushes it out

    def test_of_equal_trials_the_older_goes_on(self) -> None:
        world = asha()
        world.reach(0, 0.5)
        world.reach(1, 0.5)
        assert world.reach(2, 0.5) == [to(0, 3)]

    def test_a_trial_at_the_top_is_closed(self) -> None:
        world = asha(num_rungs=1, max_trials=2, max_concurrent_trials=1)
        assert world.log[1] == to(0, 9, is_last=True)
        assert brief(world.reach(0, 0.5)) == [Close(0), 1, to(1, 9, is_last=True)]
        assert not world.search.was_stopped(0)

    def test_when_no_more_come_those_that_rest_are_closed_from_below(self) -> None:
        world = asha(max_trials=3)
        assert world.reach(0, 0.3) == []
        assert world.reach(1, 0.2) == []
        assert world.reach(2, 0.1) == [to(2, 3), Close(0), Close(1)]
        assert [world.search.was_stopped(index) for index in range(3)] == [True, True, False]
        world.end_closed()
        assert world.reach(2, 0.1) == [Close(2)]
        assert world.exit(2) == [Shutdown()]

    def test_larger_may_be_better(self) -> None:
        world = asha(smaller_is_better=False)
        world.reach(0, 0.5)
        world.reach(1, 0.6)
        assert world.reach(2, 0.4) == [to(1, 3)]
        assert world.search.rung_metrics(1) == [0.6]

    @pytest.mark.parametrize("metric", [None, math.nan, math.inf, -math.inf])
    @pytest.mark.parametrize("smaller_is_better", [True, False])
    def test_what_is_no_number_is_the_worst(
        self, metric: float | None, smaller_is_better: bool
    ) -> None:
        world = asha(smaller_is_better=smaller_is_better)
        world.reach(0, metric)
        world.reach(1, -1e300)
        assert world.reach(2, metric) == [to(1, 3)]
        assert world.search.rung_metrics(0) == [None]

    def test_a_trial_that_fails_is_the_worst_of_the_rung_it_was_on_the_way_to(self) -> None:
        world = asha()
        world.reach(0, 0.5)
        assert brief(world.exit(1, ExitReason.ERRORED)) == [4, to(4, 1)]
        assert world.search.rung_metrics(1) == [None]
        assert world.reach(2, 0.9) == [to(0, 3)]

    def test_a_promotion_of_one_that_left_is_lost(self) -> None:
        world = asha()
        world.exit(0, ExitReason.ERRORED)
        world.exit(1, ExitReason.STOPPED)
        assert brief(world.exit(2, ExitReason.CANCELED)) == [5, to(5, 1)]
        assert world.search.rung_metrics(0) == [None, None]
        assert brief(world.reach(3, 0.1)) == [to(3, 3)]

    def test_a_trial_that_is_killed_while_it_rests_keeps_its_results(self) -> None:
        world = asha()
        world.reach(0, 0.1)
        assert world.exit(0, ExitReason.CANCELED) == []
        world.reach(1, 0.6)
        assert brief(world.reach(2, 0.7)) == [5, to(5, 1)]  # the promotion was that of trial 0
        assert world.search.rung_metrics(0) == [0.1, None]

    def test_invalid_hyperparameters_are_replaced_and_forgotten(self) -> None:
        world = asha()
        for index in range(3):
            world.reach(index, 0.1 * index)
        assert 0 in world.targets
        assert brief(world.exit(0, ExitReason.INVALID_HP)) == [5, to(5, 1)]
        assert world.search.rung_metrics(0) == []
        rungs = world.search.view().brackets[0].rungs
        assert [(rung.num_results, rung.num_promoted) for rung in rungs] == [
            (2, 0),
            (0, 0),
            (0, 0),
        ]
        world.run(lambda index: index)
        assert len(world.created) == 10

    def test_a_trial_that_rests_is_not_judged_again(self) -> None:
        world = asha()
        world.reach(0, 0.5)
        before = world.search.snapshot()
        assert world.search.on_target_reached(0, 0.1) == []
        assert world.search.snapshot() == before

    def test_a_trial_that_rests_may_turn_out_to_be_invalid(self) -> None:
        world = asha(max_trials=3)
        world.reach(0, 0.5)
        assert brief(world.exit(0, ExitReason.INVALID_HP)) == [3, to(3, 1)]
        assert world.search.view().brackets[0].rungs[0].num_results == 0

    def test_progress_counts_the_lowest_rung_and_then_what_is_over(self) -> None:
        world = asha(max_trials=3)
        world.reach(0, 0.3)
        assert world.search.progress == pytest.approx(1 / 3.6)
        world.reach(1, 0.2)
        world.reach(2, 0.1)
        assert world.search.progress == pytest.approx(3 / 3.6)
        world.end_closed()
        world.reach(2, 0.1)
        assert world.search.progress == pytest.approx(3 / 3.6)
        world.exit(2)
        assert world.search.progress == 1


class TestStopping:
    def test_the_first_at_a_rung_goes_on_always(self) -> None:
        world = asha(stop_once=True)
        assert world.reach(0, 0.5) == [to(0, 3)]
        assert world.reach(0, 0.5) == [to(0, 9, is_last=True)]
        assert brief(world.reach(0, 0.5)) == [Close(0), 3, to(3, 1)]
        assert not world.search.was_stopped(0)

    def test_a_worse_trial_stops_for_good_and_a_better_one_goes_on(self) -> None:
        world = asha(stop_once=True)
        world.reach(0, 0.5)
        assert brief(world.reach(1, 0.6)) == [Close(1), 3, to(3, 1)]
        assert world.search.was_stopped(1)
        assert world.reach(2, 0.4) == [to(2, 3)]

    def test_of_equal_trials_the_newer_goes_on(self) -> None:
        world = asha(stop_once=True)
        world.reach(0, 0.5)
        assert world.reach(1, 0.5) == [to(1, 3)]

    def test_a_trial_that_fails_stays_where_it_is(self) -> None:
        world = asha(stop_once=True)
        assert brief(world.exit(0, ExitReason.ERRORED)) == [3, to(3, 1)]
        assert world.search.rung_metrics(0) == [None]


class TestTime:
    def make(self, **changes: Any) -> World:
        times = {"max_length": None, "time_metric": "epochs", "max_time": 9}
        return asha(**(times | changes))

    def test_trials_train_by_themselves(self) -> None:
        world = self.make()
        assert brief(world.log)[:2] == [0, to(0, 9, is_last=True)]
        assert world.search.time_metric == "epochs"

    def test_any_metric_may_be_the_time_and_max_length_is_a_bound(self) -> None:
        world = self.make(time_metric="tokens", max_time=9000, max_length={"batches": 50})
        assert world.log[1] == TrainTo(0, Length("batches", 50), is_last=True)
        assert world.search.view().brackets[0].rungs[0].length == {"tokens": 1000}

    def test_a_worse_trial_is_closed_while_it_trains(self) -> None:
        world = self.make()
        assert world.report(0, 1, 0.5) == []
        assert world.report(1, 1, 0.4) == []  # ahead of the first
        assert brief(world.report(2, 1, 0.6)) == [Close(2), 3, to(3, 9, is_last=True)]
        assert world.search.was_stopped(2)

    def test_before_its_rung_a_report_does_nothing(self) -> None:
        world = self.make(max_time=90)
        assert world.report(0, 9.9, 0.5) == []
        assert world.search.rung_metrics(0) == []
        assert world.report(0, 10, 0.5) == []
        assert world.search.rung_metrics(0) == [0.5]
        assert world.report(0, 20, 0.1) == []
        assert world.search.rung_metrics(0) == [0.5]

    def test_one_report_may_pass_several_rungs(self) -> None:
        world = self.make()
        assert world.report(0, 4, 0.5) == []
        assert world.search.rung_metrics(0) == [0.5, 0.5]
        assert brief(world.report(0, 9, 0.5)) == [Close(0), 3, to(3, 9, is_last=True)]
        assert not world.search.was_stopped(0)

    @pytest.mark.parametrize("time", [None, math.nan, math.inf])
    def test_a_report_without_a_time_is_passed_over(self, time: float | None) -> None:
        world = self.make()
        assert world.report(0, time, 0.5) == []
        assert world.search.rung_metrics(0) == []

    def test_a_trial_that_comes_to_its_bound_is_closed(self) -> None:
        world = self.make(time_metric="tokens", max_length={"batches": 50})
        assert brief(world.reach(0, 0.5))[:2] == [Close(0), 3]

    def test_other_forms_do_not_look_at_reports(self) -> None:
        world = asha()
        assert world.report(0, 9, 0.5) == []
        assert world.search.rung_metrics(0) == []


def adaptive(max_trials: int, max_length: int, **changes: Any) -> AdaptiveAshaSearcher:
    config = make_config(
        name="adaptive_asha", max_trials=max_trials, max_length=max_length, **changes
    )
    assert isinstance(config.searcher, AdaptiveAshaSearcher)
    return config.searcher


def tournament(**searcher: Any) -> World:
    return World(make_config(name="adaptive_asha", divisor=3, **searcher))


class TestTournament:
    @pytest.mark.parametrize(
        ("smaller_is_better", "stop_once", "trained"),
        [
            (True, False, [900, 300, 300, 900, 900]),
            (True, True, [900, 300, 300, 900, 900]),
            (False, False, [300, 300, 900, 900, 900]),
            (False, True, [900, 900, 900, 900, 900]),  # each better than those before it
        ],
    )
    def test_trials_train_so_far(
        self, smaller_is_better: bool, stop_once: bool, trained: list[int]
    ) -> None:
        world = tournament(
            max_trials=5, max_length=900, max_rungs=2, max_concurrent_trials=5,
            smaller_is_better=smaller_is_better, stop_once=stop_once,
        )  # fmt: skip
        world.run(lambda index: 0.1 * (index + 1))
        assert [world.trained[index] for index in range(5)] == trained

    @pytest.mark.parametrize(
        ("mode", "rungs"),
        [
            ("standard", [[1], [2, 1], [3, 2], [4, 3, 2], [5, 4, 3]]),
            ("aggressive", [[1], [2], [3], [4], [5]]),
            ("conservative", [[1], [2, 1], [3, 2, 1], [4, 3, 2, 1], [5, 4, 3, 2, 1]]),
        ],
    )
    def test_a_mode_gives_these_brackets(self, mode: str, rungs: list[list[int]]) -> None:
        for most, expected in enumerate(rungs, 1):
            searcher = adaptive(10**6, 10**6, mode=mode, max_rungs=most)
            assert searcher.rungs_of_brackets == expected

    def test_logarithms_are_rounded_as_in_determined(self) -> None:
        searcher = adaptive(10**6, 1000, divisor=10, max_rungs=9, mode="aggressive")
        assert searcher.rungs_of_brackets == [3]  # log(1000) / log(10) is a little less than 3

    def test_brackets_may_be_given(self) -> None:
        assert adaptive(100, 10**6, bracket_rungs=[2, 4, 3]).rungs_of_brackets == [4, 3, 2]

    @pytest.mark.parametrize(
        ("max_trials", "divisor", "rungs", "trials"),
        [
            (20, 3, [3, 2, 1], [12, 5, 3]),
            (50, 3, [4, 3], [35, 15]),
            (50, 4, [3, 2], [37, 13]),
            (100, 4, [4, 3, 2], [70, 22, 8]),
            (2, 4, [3, 2, 1], [1, 1, 1]),
        ],
    )
    def test_trials_are_spread_over_the_brackets(
        self, max_trials: int, divisor: float, rungs: list[int], trials: list[int]
    ) -> None:
        assert bracket_max_trials(max_trials, divisor, rungs) == trials

    @pytest.mark.parametrize(
        ("limit", "divisor", "trials", "concurrent"),
        [
            (0, 3, [9, 3, 1], [3, 3, 3]),
            (11, 3, [9, 3, 1], [4, 4, 3]),
            (0, 4, [40, 10], [10, 10]),
            (1, 4, [40, 10], [1, 1]),
        ],
    )
    def test_concurrency_is_spread_over_the_brackets(
        self, limit: int, divisor: float, trials: list[int], concurrent: list[int]
    ) -> None:
        assert bracket_max_concurrent(limit, divisor, trials) == concurrent

    @pytest.mark.parametrize(
        ("searcher", "brackets"),
        [
            (adaptive(10, 100, max_concurrent_trials=2), [(2, 7, 1), (1, 3, 1)]),
            (adaptive(10, 1000, divisor=3, mode="conservative", max_concurrent_trials=5),
             [(3, 7, 2), (2, 2, 2), (1, 1, 1)]),
            (adaptive(9, 90, divisor=3, max_concurrent_trials=3), [(3, 6, 2), (2, 3, 1)]),
            (adaptive(5, 900, divisor=3, max_rungs=2), [(2, 3, 8), (1, 2, 8)]),
            (adaptive(16, 937), [(3, 12, 8), (2, 4, 8)]),
            (adaptive(100, 1000), [(4, 70, 6), (3, 22, 5), (2, 8, 5)]),
            (adaptive(500, 100000), [(5, 354, 6), (4, 110, 5), (3, 36, 5)]),
            (adaptive(500, 100000, mode="aggressive"), [(5, 500, 16)]),
            (adaptive(500, 100000, mode="conservative"),
             [(5, 341, 4), (4, 105, 3), (3, 35, 3), (2, 13, 3), (1, 6, 3)]),
            (adaptive(1, 100), [(1, 1, 16)]),
            (adaptive(4, 900), [(2, 3, 8), (1, 1, 8)]),
        ],
    )  # fmt: skip
    def test_a_search_has_these_brackets(
        self, searcher: AdaptiveAshaSearcher, brackets: list[tuple[int, int, int]]
    ) -> None:
        plans = searcher.plan_brackets()
        found = [(p.num_rungs, p.max_trials, p.max_concurrent_trials) for p in plans]
        assert found == brackets

    @pytest.mark.parametrize("limit", [0, 100_000])
    def test_all_brackets_together_have_a_thousand_trials_at_work_at_most(
        self, limit: int
    ) -> None:
        world = tournament(
            mode="conservative", max_trials=100_000, max_length={"batches": 10_000},
            max_concurrent_trials=limit,
        )  # fmt: skip
        assert len(world.search.view().brackets) == 5
        assert len(world.created) <= 1000

    def test_one_bracket_of_async_halving_has_what_was_asked_for(self) -> None:
        searcher = asha(max_concurrent_trials=20).config.searcher
        assert isinstance(searcher, AsyncHalvingSearcher)
        (plan,) = searcher.plan_brackets()
        assert (plan.num_rungs, plan.max_trials, plan.max_concurrent_trials) == (3, 9, 9)

    def test_brackets_are_independent_and_trials_belong_to_one(self) -> None:
        world = tournament(max_trials=9, max_length={"epochs": 90}, max_concurrent_trials=3)
        assert brief(world.log) == [0, to(0, 10), 1, to(1, 10), 2, to(2, 30)]
        assert [world.search.bracket_of(index) for index in range(3)] == [0, 0, 1]
        assert brief(world.reach(2, 0.5)) == [3, to(3, 30)]
        assert world.search.bracket_of(3) == 1
        assert brief(world.reach(0, 0.1)) == [4, to(4, 10)]
        assert world.search.bracket_of(4) == 0
        lengths = [
            [rung.length["epochs"] for rung in bracket.rungs]
            for bracket in world.search.view().brackets
        ]
        assert lengths == [[10, 30, 90], [30, 90]]

    def test_progress_is_the_mean_of_the_brackets(self) -> None:
        world = tournament(max_trials=9, max_length={"epochs": 90}, max_concurrent_trials=3)
        world.reach(0, 0.5)
        world.reach(2, 0.5)
        assert world.search.progress == pytest.approx((1 / 7.2 + 1 / 3.6) / 2)
