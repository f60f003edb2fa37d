"""`async_halving` and `adaptive_asha`: a tournament of brackets.

Brackets share nothing but the generator: each trial belongs to one, and the places that are free
in a bracket are its own. bracket.py says what they do, planning.py how many there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from det_jupyter.errors import Problem
from det_jupyter.searcher.bracket import Bracket
from det_jupyter.searcher.change import SearchChange, find_shorter
from det_jupyter.searcher.method import Action, ExitReason
from det_jupyter.searcher.planning import (
    BracketPlan,
    Form,
    HalvingSearcher,
    concurrency,
    full_length,
    make_rules,
    plan_brackets,
    shares,
)
from det_jupyter.searcher.trials import MAX_AT_WORK, Trials
from det_jupyter.wire import BracketView


class Halving:
    """The brackets of a search; each trial belongs to one."""

    def __init__(self, searcher: HalvingSearcher, trials: Trials) -> None:
        self._searcher = searcher
        self._trials = trials
        self._rules = make_rules(searcher)
        self._full = full_length(searcher)
        self._max_concurrent_trials = searcher.max_concurrent_trials
        self._brackets = self._make_brackets(plan_brackets(searcher))

    def _make_brackets(self, plans: list[BracketPlan]) -> list[Bracket]:
        most_at_work = MAX_AT_WORK // len(plans)
        return [
            Bracket(
                self._trials, number, self._rules, plan, full=self._full, most_at_work=most_at_work
            )
            for number, plan in enumerate(plans)
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

    def find_problems(self, change: SearchChange) -> list[Problem]:
        """Return why the length cannot be changed; the rest can."""
        new = change.max_length
        if new is None:
            return []
        if self._rules.form is Form.TIME:
            return [
                Problem(
                    "searcher.max_length",
                    f"got {new}, but this search measures training by "
                    f"{self._rules.unit} up to max_time, which cannot be changed",
                )
            ]
        return find_shorter(new, self._rules.unit, self._full)

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
        more_of = shares(more, self._rules.divisor, num_rungs)
        more_of[0] += more - sum(more_of)
        return [trials + share for trials, share in zip(present, more_of, strict=True)]

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
        self._brackets = self._make_brackets([BracketPlan(1, 1, 1)] * len(snapshot["brackets"]))
        for bracket, state in zip(self._brackets, snapshot["brackets"], strict=True):
            bracket.restore(state)
