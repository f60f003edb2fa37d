"""`async_halving`, one bracket of ASHA, and `adaptive_asha`, a tournament of several.

Brackets differ in the number of their rungs, that is, in how early they begin to stop trials:
which is best nobody knows beforehand. They share nothing but the generator.

    R = min(max_rungs, int(ln L / ln divisor) + 1, int(ln max_trials / ln divisor) + 1)

    aggressive        R                      conservative     1 ... R
    standard          (R-1)//2 + 1 ... R     bracket_rungs    as given

Each gets trials by the weight divisor ** (r - 1) / r, one at least, so that all train about
as much. What rounding leaves over goes to the bracket with most rungs.

    16 trials, 937 batches, divisor 4     3 rungs: 12 trials    2 rungs: 4 trials
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from typing import Any

from det_jupyter.config import Length
from det_jupyter.config.lengths import UNITS
from det_jupyter.config.searchers import AdaptiveAshaSearcher, AsyncHalvingSearcher
from det_jupyter.searcher.actions import Action, ExitReason
from det_jupyter.searcher.bracket import Bracket, BracketPlan, Form, Rules
from det_jupyter.searcher.change import SearchChange
from det_jupyter.searcher.trials import Trials
from det_jupyter.wire import BracketView

HalvingSearcher = AsyncHalvingSearcher | AdaptiveAshaSearcher


def make_rules(searcher: HalvingSearcher) -> Rules:
    """Return what the brackets have in common."""
    if searcher.time_metric is None:
        assert searcher.max_length is not None, "config asks for one or the other"
        form = Form.STOP if searcher.stop_once else Form.PROMOTE
        return Rules(form=form, divisor=searcher.divisor, unit=searcher.max_length.unit)
    return Rules(
        form=Form.TIME,
        divisor=searcher.divisor,
        unit=searcher.time_metric,
        bound=searcher.max_length or _length_in(searcher.time_metric, full_length(searcher)),
    )


def _length_in(name: str, amount: int) -> Length:
    unit = next(unit for unit in UNITS if unit == name)
    return Length(unit, amount)


def full_length(searcher: HalvingSearcher) -> int:
    """Return the length of the top rungs."""
    if searcher.time_metric is not None:
        assert searcher.max_time is not None, "config asks for both"
        return searcher.max_time
    assert searcher.max_length is not None, "config asks for one or the other"
    return searcher.max_length.amount


def plan_brackets(searcher: HalvingSearcher) -> list[BracketPlan]:
    """Return the brackets of a search, the one with most rungs first."""
    if isinstance(searcher, AsyncHalvingSearcher):
        num_rungs, trials = [searcher.num_rungs], [searcher.max_trials]
    else:
        num_rungs = bracket_rungs(searcher)
        trials = bracket_max_trials(searcher.max_trials, searcher.divisor, num_rungs)
    concurrent = concurrency(searcher, searcher.max_concurrent_trials, num_rungs, trials)
    return [BracketPlan(*plan) for plan in zip(num_rungs, trials, concurrent, strict=True)]


def bracket_rungs(searcher: AdaptiveAshaSearcher) -> list[int]:
    """Return the number of rungs of each bracket, descending."""
    if searcher.bracket_rungs:
        return sorted(searcher.bracket_rungs, reverse=True)
    scale = log(searcher.divisor)
    most = min(
        searcher.max_rungs,
        int(log(full_length(searcher)) / scale) + 1,
        int(log(searcher.max_trials) / scale) + 1,
    )
    fewest = {"aggressive": most, "standard": (most - 1) // 2 + 1, "conservative": 1}
    return list(range(most, fewest[searcher.mode] - 1, -1))


def bracket_max_trials(max_trials: int, divisor: float, num_rungs: Sequence[int]) -> list[int]:
    """Return the trials of each bracket, which together may be a few more than `max_trials`.

    >>> bracket_max_trials(20, 3, [3, 2, 1]), bracket_max_trials(100, 4, [4, 3, 2])
    ([12, 5, 3], [70, 22, 8])
    """
    trials = [max(share, 1) for share in _shares(max_trials, divisor, num_rungs)]
    trials[0] += max(max_trials - sum(trials), 0)
    return trials


def _shares(max_trials: int, divisor: float, num_rungs: Sequence[int]) -> list[int]:
    weights = [divisor ** (rungs - 1) / rungs for rungs in num_rungs]
    total = sum(weights)
    return [int(weight / total * max_trials) for weight in weights]


def bracket_max_concurrent(limit: int, divisor: float, max_trials: Sequence[int]) -> list[int]:
    """Return how many trials each bracket has at work at a time.

    >>> bracket_max_concurrent(0, 3, [9, 3, 1]), bracket_max_concurrent(11, 3, [9, 3, 1])
    ([3, 3, 3], [4, 4, 3])
    """
    if limit == 0:
        return [max(max_trials[-1], int(divisor))] * len(max_trials)
    each, rest = divmod(max(limit, len(max_trials)), len(max_trials))
    return [each + (number < rest) for number in range(len(max_trials))]


def concurrency(
    searcher: HalvingSearcher, limit: int, num_rungs: Sequence[int], max_trials: Sequence[int]
) -> list[int]:
    """Return how many trials each bracket has at work at a time; `limit` 0: as many as suit it."""
    if isinstance(searcher, AdaptiveAshaSearcher):
        return bracket_max_concurrent(limit, searcher.divisor, max_trials)
    if limit > 0:
        return [min(limit, max_trials[0])]
    suitable = searcher.divisor ** (num_rungs[0] - 1)
    return [int(max(min(suitable, max_trials[0]), 1))]


class Halving:
    """The brackets of a search; each trial belongs to one."""

    def __init__(self, searcher: HalvingSearcher, trials: Trials) -> None:
        self._searcher = searcher
        self._trials = trials
        self._rules = make_rules(searcher)
        self._full = full_length(searcher)
        self._max_concurrent_trials = searcher.max_concurrent_trials
        self._brackets = [
            Bracket(trials, number, self._rules, plan, self._full)
            for number, plan in enumerate(plan_brackets(searcher))
        ]

    @property
    def max_trials(self) -> int:
        """How many trials there will be: all brackets together."""
        return sum(bracket.max_trials for bracket in self._brackets)

    @property
    def progress(self) -> float:
        """How much is done: the mean of the brackets."""
        return sum(bracket.progress for bracket in self._brackets) / len(self._brackets)

    def start(self) -> list[Action]:
        """Make the first trials, bracket by bracket."""
        return [action for bracket in self._brackets for action in bracket.start()]

    def _bracket(self, index: int) -> Bracket:
        return self._brackets[self._trials.bracket[index]]

    def on_target_reached(self, index: int, metric: float) -> list[Action]:
        """Judge a trial at its rung."""
        return self._bracket(index).on_target_reached(index, metric)

    def on_report(self, index: int, time: float | None, metric: float) -> list[Action]:
        """Judge a trial that is measured by time."""
        return self._bracket(index).on_report(index, time, metric)

    def on_exited(self, index: int, reason: ExitReason) -> list[Action]:
        """Count a trial that is over."""
        return self._bracket(index).on_exited(index, reason)

    def find_problems(self, change: SearchChange) -> list[str]:
        """Return why the length cannot be changed; the rest can."""
        new = change.max_length
        if new is None:
            return []
        if self._rules.form is Form.TIME:
            return [
                f"searcher.max_length: got {new}, but this search measures training by "
                f"{self._rules.unit} up to max_time, which cannot be changed"
            ]
        if new.unit != self._rules.unit or new.amount < self._full:
            return [f"searcher.max_length: got {new}, expected at least {self._full} {self._unit}"]
        return []

    @property
    def _unit(self) -> str:
        return self._rules.unit

    def change(self, change: SearchChange) -> list[Action]:
        """Spread more trials over the brackets; put a longer rung on top of the highest ones."""
        trials = self._spread(change.max_trials)
        if change.max_concurrent_trials is not None:
            self._max_concurrent_trials = change.max_concurrent_trials
        num_rungs = [bracket.num_rungs for bracket in self._brackets]
        concurrent = concurrency(self._searcher, self._max_concurrent_trials, num_rungs, trials)
        is_longer = change.max_length is not None and change.max_length.amount > self._full
        if is_longer and change.max_length is not None:
            self._full = change.max_length.amount
        actions: list[Action] = []
        for bracket, max_trials, limit in zip(self._brackets, trials, concurrent, strict=True):
            gets_rung = is_longer and bracket.num_rungs == max(num_rungs)
            actions += bracket.set_limits(
                max_trials=max_trials,
                max_concurrent_trials=limit,
                full=self._full if gets_rung else None,
            )
        return actions

    def _spread(self, max_trials: int | None) -> list[int]:
        """Return the trials of each bracket if there are `max_trials` in all."""
        present = [bracket.max_trials for bracket in self._brackets]
        more = 0 if max_trials is None else max_trials - self.max_trials
        num_rungs = [bracket.num_rungs for bracket in self._brackets]
        shares = _shares(more, self._rules.divisor, num_rungs)
        shares[0] += more - sum(shares)
        return [trials + share for trials, share in zip(present, shares, strict=True)]

    def brackets(self) -> list[BracketView]:
        """Return how the brackets stand."""
        return [bracket.view() for bracket in self._brackets]

    def rung_metrics(self, index: int) -> list[float]:
        """Return the trial's metrics at the rungs of its bracket."""
        return self._bracket(index).rung_metrics(index)

    def snapshot(self) -> dict[str, Any]:
        """Return the brackets as JSON-ready data."""
        return {
            "full": self._full,
            "max_concurrent_trials": self._max_concurrent_trials,
            "brackets": [bracket.snapshot() for bracket in self._brackets],
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go back to where `snapshot` was taken."""
        self._full = snapshot["full"]
        self._max_concurrent_trials = snapshot["max_concurrent_trials"]
        # A changed search has other brackets than its configuration would give it now.
        plan = BracketPlan(1, 1, 1)
        self._brackets = [
            Bracket(self._trials, number, self._rules, plan, self._full)
            for number in range(len(snapshot["brackets"]))
        ]
        for bracket, state in zip(self._brackets, snapshot["brackets"], strict=True):
            bracket.restore(state)
