"""A preview of a search: how much it would train, and the ranges that its trials draw from.

The search method computes how many trials end at each length (planning.py); this module adds these
numbers up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from heapq import heapify, heapreplace
from operator import getitem
from typing import Any

from det_jupyter.contract.schema.hyperparameters import is_range, leaves
from det_jupyter.contract.values.text import hparam_text
from det_jupyter.searcher.grid import axis_values
from det_jupyter.searcher.planning import BracketForecast, Ends
from det_jupyter.searcher.searcher_section import SearcherSection

# Most trials that are simulated; with more, the wait for the last ones is negligible.
_MOST_SCHEDULED = 10_000
NUM_SAMPLES = 5
_MOST_VALUES = 8  # most values that are listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The training that a search would do. All amounts are in `unit`."""

    searcher: str  # its name
    metric: str  # the searcher metric
    unit: str  # batches, records, epochs or the time metric
    brackets: tuple[BracketForecast, ...]  # most rungs first

    @property
    def num_trials(self) -> int:
        """The number of trials."""
        return sum(self.trials.values())

    @property
    def trials(self) -> Ends:
        """Expected number of trials that end at each length, all brackets together."""
        return _together(bracket.trials for bracket in self.brackets)

    @property
    def max_concurrent_trials(self) -> int:
        """The number of trials that train at a time if there are enough slots."""
        return sum(bracket.max_concurrent_trials for bracket in self.brackets)

    @property
    def expected(self) -> int:
        """The expected training of all trials together."""
        return _training(self.trials)

    @property
    def least(self) -> int:
        """The training of all trials if as few as possible continue at each rung."""
        return _training(_together(bracket.least_trials for bracket in self.brackets))

    @property
    def most(self) -> int:
        """The training of all trials if as many as possible continue at each rung."""
        return _training(_together(bracket.most_trials for bracket in self.brackets))

    @property
    def full(self) -> int:
        """The training of all trials if each trained to the full length."""
        return self.num_trials * max(self.trials)

    def seconds(self, seconds_per_unit: float, concurrent: int) -> tuple[float, float]:
        """Return the duration of the search in seconds: (at best, expected).

        At best, as few trials as possible continue at each rung.

        Args:
            seconds_per_unit: How long a trial takes for one unit of training.
            concurrent: Number of trials that can train at a time.
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
    """Return when the last trial ends, if each starts at the place that becomes free first.

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


def preview(searcher: SearcherSection, hyperparameters: Mapping[str, Any]) -> Preview:
    """Return the preview of a search."""
    return Preview(
        searcher=searcher.name,
        metric=searcher.metric,
        unit=searcher.unit,
        brackets=tuple(searcher.plan(hyperparameters)),
    )


@dataclass(frozen=True, slots=True)
class Range:
    """A hyperparameter that is drawn: its range in words, and some values from it."""

    name: str
    words: str
    samples: tuple[Any, ...]


def sample_ranges(
    searcher: SearcherSection, hyperparameters: Mapping[str, Any], seed: int
) -> list[Range]:
    """Return the ranges of a search, in the order of the configuration."""
    samples = searcher.sample(hyperparameters, seed, NUM_SAMPLES)
    return [
        Range(
            ".".join(path),
            _describe(spec, is_listed=searcher.is_exhaustive),
            tuple(reduce(getitem, path, sample) for sample in samples),
        )
        for path, spec in leaves(hyperparameters)
        if is_range(spec)
    ]


def _describe(spec: Mapping[str, Any], *, is_listed: bool) -> str:
    """Return a range in words; `is_listed`: as the list of values that are tried.

    >>> _describe({"type": "log", "base": 10, "minval": -4, "maxval": -1}, is_listed=False)
    '0.0001 to 0.1, even in the exponent'
    """
    if spec["type"] == "categorical" or is_listed:
        values = spec["vals"] if spec["type"] == "categorical" else axis_values(spec)
        more = ", ..." if len(values) > _MOST_VALUES else ""
        return f"{', '.join(map(hparam_text, values[:_MOST_VALUES]))}{more}"
    low, high = spec["minval"], spec["maxval"]
    if spec["type"] == "log":
        low, high = (float(spec["base"]) ** exponent for exponent in (low, high))
        return f"{low:.4g} to {high:.4g}, even in the exponent"
    return f"{low:g} to {high:g}" + (", whole" if spec["type"] == "int" else "")
