"""What a search would train, before it does: arithmetic on its rungs.

Of n trials that come to a rung, so many go on to the next, if none fails:

              promote                      stop, time
    least     int(n / divisor)             1           each trial worse than those before
    most      n - ceil(divisor) + 1        n           each trial better than those before
    expected  max(int(n / divisor), 1), what Determined's preview says, within these bounds

Trials that fail or have invalid hyperparameters are not foreseen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from heapq import heapify, heapreplace
from math import ceil
from operator import getitem
from typing import Any

from det_jupyter.config import ExperimentConfig
from det_jupyter.config.hyperparameters import is_drawn, leaves
from det_jupyter.config.rungs import rung_lengths
from det_jupyter.config.searchers import (
    AdaptiveAshaSearcher,
    AsyncHalvingSearcher,
    GridSearcher,
    OptunaSearcher,
    RandomSearcher,
)
from det_jupyter.searcher.grid import Grid, axis_values
from det_jupyter.searcher.planning import (
    BracketPlan,
    Form,
    full_length,
    make_rules,
    plan_brackets,
)
from det_jupyter.searcher.trials import Trials
from det_jupyter.words import setting

_MOST_SCHEDULED = 10_000  # trials; of more, what the last ones wait for does not show


Ends = Mapping[int, int]  # number of trials that end at each length, lowest first
NUM_SAMPLES = 5
_MOST_VALUES = 8  # that are named one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBracket:
    """A bracket before it runs; a search without brackets is one with one length."""

    trials: Ends  # where how many are expected to end
    least_trials: Ends  # the same, if as few as possible go on
    most_trials: Ends  # the same, if as many as possible do
    max_concurrent_trials: int  # at most so many are at work at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a search would train. All amounts are in `unit`."""

    searcher: str  # its name
    metric: str  # the searcher metric
    unit: str  # batches, records, epochs or the time metric
    brackets: tuple[PlannedBracket, ...]  # most rungs first

    @property
    def num_trials(self) -> int:
        """How many trials there will be."""
        return sum(self.trials.values())

    @property
    def trials(self) -> Ends:
        """Where how many are expected to end, all brackets together."""
        return _together(bracket.trials for bracket in self.brackets)

    @property
    def max_concurrent_trials(self) -> int:
        """How many trials are at work at a time, however many slots there are."""
        return sum(bracket.max_concurrent_trials for bracket in self.brackets)

    @property
    def expected(self) -> int:
        """How much training that is, all trials together."""
        return _training(self.trials)

    @property
    def least(self) -> int:
        """The same, if as few trials as possible are trained on."""
        return _training(_together(bracket.least_trials for bracket in self.brackets))

    @property
    def most(self) -> int:
        """The same, if as many trials as possible are trained on."""
        return _training(_together(bracket.most_trials for bracket in self.brackets))

    @property
    def full(self) -> int:
        """The same, if every trial was trained to the full length."""
        return self.num_trials * max(self.trials)

    def seconds(self, seconds_per_unit: float, concurrent: int) -> tuple[float, float]:
        """Return how long the search takes, (at best, as expected).

        At best as few trials as possible are trained on.

        Args:
            seconds_per_unit: How long a trial takes for one unit of training.
            concurrent: So many trials have room at a time.
        """
        if concurrent < 1:
            raise ValueError(f"concurrent: got {concurrent}, expected at least 1")
        places = min(concurrent, self.max_concurrent_trials)
        least = _together(bracket.least_trials for bracket in self.brackets)
        expected = _schedule(self.trials, places)
        best = min(_schedule(least, places), expected)
        return best * seconds_per_unit, expected * seconds_per_unit


def _together(parts: Iterable[Ends]) -> Ends:
    numbers: Counter[int] = Counter()
    for part in parts:
        numbers.update(part)
    return dict(sorted(numbers.items()))


def _training(trials: Ends) -> int:
    return sum(length * number for length, number in trials.items())


def _schedule(trials: Ends, places: int) -> float:
    """Return when the last trial ends, if each takes the place that is free first.

    Trials of each length are spread evenly over the search, as promotions are.
    """
    number = sum(trials.values())
    longest = max(length for length, of_length in trials.items() if of_length)
    if number > _MOST_SCHEDULED:
        return max(_training(trials) / places, longest)
    order = sorted(
        ((turn + 0.5) / of_length, -length)
        for length, of_length in trials.items()
        for turn in range(of_length)
    )
    free_at = [0] * min(places, number)
    heapify(free_at)
    for _, negative_length in order:
        heapreplace(free_at, free_at[0] - negative_length)
    return max(free_at)


def preview(config: ExperimentConfig) -> Preview:
    """Return what the configuration's search would train."""
    searcher = config.searcher
    if isinstance(searcher, (AsyncHalvingSearcher, AdaptiveAshaSearcher)):
        rules, full = make_rules(searcher), full_length(searcher)
        unit, plans = rules.unit, plan_brackets(searcher)
        brackets = [_plan(plan, full, rules.divisor, rules.form) for plan in plans]
    else:
        unit, full = searcher.max_length.unit, searcher.max_length.amount
        if isinstance(searcher, OptunaSearcher):
            brackets = [_plan_optuna(searcher, full)]
        elif isinstance(searcher, RandomSearcher):
            brackets = [_plan_full(searcher.max_trials, searcher.max_concurrent_trials, full)]
        elif isinstance(searcher, GridSearcher):
            number = len(Grid(config.hyperparameters))
            brackets = [_plan_full(number, searcher.max_concurrent_trials, full)]
        else:
            brackets = [_plan_full(1, 1, full)]
    return Preview(
        searcher=searcher.name, metric=searcher.metric, unit=unit, brackets=tuple(brackets)
    )


def _plan_full(number: int, limit: int, full: int, *, least_length: int = 0) -> PlannedBracket:
    trials = {full: number}
    return PlannedBracket(
        trials=trials,
        least_trials={least_length or full: number},
        most_trials=trials,
        max_concurrent_trials=min(limit or number, number),
    )


def _plan_optuna(searcher: OptunaSearcher, full: int) -> PlannedBracket:
    number = searcher.max_trials
    limit = searcher.max_concurrent_trials or number
    if searcher.pruner == "asha":
        plan = BracketPlan(searcher.num_rungs, number, min(limit, number))
        return _plan(plan, full, searcher.divisor, Form.STOP)
    # A pruner of Optuna's may end any trial at its first validation, or none.
    return _plan_full(number, limit, full, least_length=0 if searcher.pruner == "none" else 1)


def _plan(plan: BracketPlan, full: int, divisor: float, form: Form) -> PlannedBracket:
    lengths = rung_lengths(full, divisor, plan.num_rungs)
    least, expected, most = [plan.max_trials], [plan.max_trials], [plan.max_trials]
    for _ in lengths[1:]:
        least.append(int(least[-1] / divisor) if form is Form.PROMOTE else 1)
        most.append(max(most[-1] - ceil(divisor) + 1, 0) if form is Form.PROMOTE else most[-1])
        expected.append(min(max(int(expected[-1] / divisor), 1), most[-1]))
    return PlannedBracket(
        trials=_ends(lengths, expected),
        least_trials=_ends(lengths, least),
        most_trials=_ends(lengths, most),
        max_concurrent_trials=min(plan.max_concurrent_trials, plan.max_trials),
    )


def _ends(lengths: Sequence[int], arrivals: Sequence[int]) -> Ends:
    """Return how many end at each length, of those that come there."""
    ending = [come - go for come, go in zip(arrivals, [*arrivals[1:], 0], strict=True)]
    return dict(zip(lengths, ending, strict=True))


@dataclass(frozen=True, slots=True)
class Range:
    """A hyperparameter that is drawn, its range in words, and some values from it."""

    name: str
    words: str
    samples: tuple[Any, ...]


def sample_ranges(config: ExperimentConfig) -> list[Range]:
    """Return the ranges of a search, in the order in which they are written."""
    space = config.hyperparameters
    is_grid = isinstance(config.searcher, GridSearcher)
    if is_grid:
        grid = Grid(space)
        samples = [grid.point(place) for place in range(min(NUM_SAMPLES, len(grid)))]
    else:
        trials = Trials(space, config.reproducibility.experiment_seed or 0)
        samples = [trials.create().hparams for _ in range(NUM_SAMPLES)]
    return [
        Range(
            ".".join(path),
            _words(spec, is_grid=is_grid),
            tuple(reduce(getitem, path, sample) for sample in samples),
        )
        for path, spec in leaves(space)
        if is_drawn(spec)
    ]


def _words(spec: Mapping[str, Any], *, is_grid: bool) -> str:
    """Return a range in words.

    >>> _words({"type": "log", "base": 10, "minval": -4, "maxval": -1}, is_grid=False)
    '0.0001 to 0.1, even in the exponent'
    """
    if spec["type"] == "categorical" or is_grid:
        values = spec["vals"] if spec["type"] == "categorical" else axis_values(spec)
        more = ", ..." if len(values) > _MOST_VALUES else ""
        return f"{', '.join(map(setting, values[:_MOST_VALUES]))}{more}"
    low, high = spec["minval"], spec["maxval"]
    if spec["type"] == "log":
        low, high = (float(spec["base"]) ** exponent for exponent in (low, high))
        return f"{low:.4g} to {high:.4g}, even in the exponent"
    return f"{low:g} to {high:g}" + (", whole" if spec["type"] == "int" else "")
