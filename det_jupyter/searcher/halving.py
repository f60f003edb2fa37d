"""The common part of `async_halving` and `adaptive_asha`: a search made of brackets (bracket.py).

Brackets share nothing but the generator of random numbers: each trial belongs to one of them, and
each has a limit of concurrent trials of its own. The two searchers differ in their brackets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from det_jupyter.contract.messages import BracketView, SearchChange
from det_jupyter.contract.schema.fields import (
    Bool,
    Count,
    PositiveInt,
    PositiveLength,
    Title,
    as_whole,
)
from det_jupyter.contract.schema.key_paths import format_value
from det_jupyter.contract.values.lengths import UNITS, Length, parse_length
from det_jupyter.errors import Problem
from det_jupyter.searcher.bracket import Bracket
from det_jupyter.searcher.change_checks import find_shorter
from det_jupyter.searcher.method import Action, ExitReason
from det_jupyter.searcher.planning import BracketForecast, BracketPlan, Form, Rules, plan_rungs
from det_jupyter.searcher.rung_lengths import MAX_RUNGS, divisor_of, rung_lengths
from det_jupyter.searcher.searcher_section import Divisor, SearcherSection, TrialCount
from det_jupyter.searcher.trials import MAX_AT_WORK, Trials


class HalvingSection(SearcherSection):
    """The fields of both ASHA searchers.

    Training is measured by `max_length` (promotion, or rung by rung with `stop_once`), or by a
    metric that the validations report: `time_metric` up to `max_time` (stopping only).
    """

    max_length: PositiveLength | None = None
    """How long a trial trains at most; a bare number counts batches."""
    max_trials: TrialCount
    """How many trials there are in all."""
    max_concurrent_trials: Count = 16
    """How many trials are at work at a time, 1,000 at most; 0: all, or what the rungs need."""
    divisor: Divisor = 4
    """The best 1/divisor of the trials at each rung continue to the next."""
    stop_once: Bool = False
    """Judge a trial once per rung and stop it for good, instead of letting it rest."""
    time_metric: Title | None = None
    """Measure training by this validation metric (batches, records and epochs are known)."""
    max_time: PositiveInt | None = None
    """The time_metric at which the best trials end."""

    def plan_brackets(self) -> list[BracketPlan]:
        """Return the brackets of a search, the one with most rungs first."""
        raise NotImplementedError

    def concurrency(
        self, limit: int, num_rungs: Sequence[int], max_trials: Sequence[int]
    ) -> list[int]:
        """Return the most concurrent trials of each bracket; `limit` 0: the brackets' defaults."""
        raise NotImplementedError

    @classmethod
    def most_rungs_of(cls, searcher: Mapping[str, Any], time: int, divisor: float) -> int | None:
        """Return the most rungs of a bracket; None if the fields that determine it are invalid."""
        raise NotImplementedError

    @property
    def unit(self) -> str:
        """The unit in which training is measured."""
        return self.rules.unit

    @property
    def full(self) -> int:
        """The length of the top rungs."""
        if self.time_metric is not None:
            assert self.max_time is not None, "config asks for both"
            return self.max_time
        assert self.max_length is not None, "config asks for one or the other"
        return self.max_length.amount

    @property
    def rules(self) -> Rules:
        """The rules that all brackets share."""
        if self.time_metric is None:
            assert self.max_length is not None, "config asks for one or the other"
            form = Form.STOP if self.stop_once else Form.PROMOTE
            return Rules(form=form, divisor=self.divisor, unit=self.max_length.unit)
        return Rules(
            form=Form.TIME,
            divisor=self.divisor,
            unit=self.time_metric,
            bound=self.max_length or parse_length({self.time_metric: self.full}),
        )

    def make(self, trials: Trials) -> Halving:
        """Return the search method."""
        return Halving(self, trials)

    def plan(self, hyperparameters: Mapping[str, Any]) -> list[BracketForecast]:
        """Return the planned training of the brackets."""
        rules, full = self.rules, self.full
        return [plan_rungs(p, full, rules.divisor, rules.form) for p in self.plan_brackets()]

    @classmethod
    def is_endless(cls, searcher: Mapping[str, Any]) -> bool:
        """Return whether training has no length: it ends by a metric that is not its unit."""
        is_open = searcher.get("max_time") and searcher.get("time_metric") not in (None, *UNITS)
        return bool(is_open) and searcher.get("max_length") is None

    @classmethod
    def lowest_rung(cls, searcher: Mapping[str, Any]) -> Length | None:
        """Return the lowest rung of a search by a `time_metric` that is a unit of training."""
        unit = searcher.get("time_metric")
        time, divisor = as_whole(searcher.get("max_time")), divisor_of(searcher)
        if unit not in UNITS or time is None or time < 1 or divisor is None:
            return None
        if (rungs := cls.most_rungs_of(searcher, time, divisor)) is None:
            return None
        return Length(unit, rung_lengths(time, divisor, min(rungs, MAX_RUNGS))[0])

    @classmethod
    def find_contradictions(
        cls, searcher: Mapping[str, Any], hyperparameters: Mapping[str, Any]
    ) -> Iterator[Problem]:
        """Yield a problem for each missing key of `max_length`, `time_metric` and `max_time`."""
        metric, time = searcher.get("time_metric"), searcher.get("max_time")
        if metric is None and time is None:
            if "max_length" not in searcher:
                yield Problem.missing(
                    "searcher.max_length",
                    "; say how long to train, such as {epochs: 6} "
                    f"(searcher.name: {searcher['name']})",
                )
        elif metric is None:
            yield Problem.missing(
                "searcher.time_metric",
                f"; searcher.max_time ({format_value(time)}) is counted in it",
            )
        elif time is None:
            yield Problem.missing(
                "searcher.max_time",
                f"; say where searcher.time_metric ({format_value(metric)}) ends",
            )
        if metric is not None and metric not in UNITS and "max_length" not in searcher:
            yield Problem.missing(
                "searcher.max_length",
                f"; training has to end somewhere, whatever {format_value(metric)} comes to",
            )
        yield from _find_short_bound(searcher)


def _find_short_bound(searcher: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem with a bound below the top rung, which would end all trials before it."""
    metric, time = searcher.get("time_metric"), as_whole(searcher.get("max_time"))
    try:
        bound = parse_length(searcher.get("max_length"))
    except ValueError:
        return
    if bound.unit == metric and time is not None and bound.amount < time:
        yield Problem(
            "searcher.max_length", f"got {bound}, expected at least searcher.max_time ({time})"
        )


class Halving:
    """The brackets of a search; each trial belongs to one."""

    def __init__(self, searcher: HalvingSection, trials: Trials) -> None:
        self._searcher = searcher
        self._trials = trials
        self._rules = searcher.rules
        self._full = searcher.full
        self._max_concurrent_trials = searcher.max_concurrent_trials
        self._brackets = self._make_brackets(searcher.plan_brackets())

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
        """The number of trials of all brackets together."""
        return sum(bracket.max_trials for bracket in self._brackets)

    @property
    def progress(self) -> float:
        """The progress of the search, 0 to 1: the mean over the brackets."""
        return sum(bracket.progress for bracket in self._brackets) / len(self._brackets)

    def start(self) -> list[Action]:
        """Create the first trials, bracket by bracket."""
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
        """Count the exit of a trial."""
        return self._bracket(index).on_exited(index, reason)

    def find_problems(self, change: SearchChange) -> list[Problem]:
        """Return the problems with a new length; the other limits can be changed freely."""
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
        """Divide more trials among the brackets; add a longer rung on top of the highest ones."""
        trials = self._spread(change.max_trials)
        if change.max_concurrent_trials is not None:
            self._max_concurrent_trials = change.max_concurrent_trials
        num_rungs = [bracket.num_rungs for bracket in self._brackets]
        concurrent = self._searcher.concurrency(self._max_concurrent_trials, num_rungs, trials)
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
        """Return the state of each bracket."""
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
        """Restore what `snapshot` returned."""
        self._full = snapshot["full"]
        self._max_concurrent_trials = snapshot["max_concurrent_trials"]
        # The brackets of a search that was changed differ from those of its configuration.
        self._brackets = self._make_brackets([BracketPlan(1, 1, 1)] * len(snapshot["brackets"]))
        for bracket, state in zip(self._brackets, snapshot["brackets"], strict=True):
            bracket.restore(state)


def shares(max_trials: int, divisor: float, num_rungs: Sequence[int]) -> list[int]:
    """Return the number of trials of each bracket, rounded down: at most `max_trials` together."""
    weights = [divisor ** (rungs - 1) / rungs for rungs in num_rungs]
    total = sum(weights)
    return [int(weight / total * max_trials) for weight in weights]
