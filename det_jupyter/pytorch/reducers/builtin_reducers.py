"""Reduction of a metric over the batches and ranks of a validation: AVG, SUM, MAX, MIN.

Sums are exact before they are rounded (`math.fsum`: Shewchuk, "Adaptive precision floating-point
arithmetic", 1997). So the order of the batches, and how they were divided among the ranks, changes
at most the last bit of a result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from det_jupyter.contract.values.text import listed
from det_jupyter.errors import ConfigError


class Reducer(Enum):
    """How a validation metric is reduced. AVG weights each batch by its records."""

    AVG = "avg"
    SUM = "sum"
    MAX = "max"
    MIN = "min"


@dataclass(frozen=True, slots=True)
class MetricPart:
    """One rank's part of a metric: the reduced value of its batches, and their record count."""

    value: float  # for AVG, the sum of values times records
    records: float


def reduce_batches(
    reducer: Reducer, values: Sequence[float], records: Sequence[float]
) -> MetricPart:
    """Return one rank's part, from the values and record counts of its batches (at least one)."""
    if reducer is Reducer.AVG:
        pairs = zip(values, records, strict=True)
        # A value that was computed from no records does not count, also if it is NaN.
        products = [value * count if count else 0.0 for value, count in pairs]
        return MetricPart(exact_sum(products), exact_sum(records))
    return MetricPart(_reduce(reducer, values), exact_sum(records))


def reduce_ranks(reducer: Reducer, parts: Sequence[MetricPart]) -> float:
    """Return the metric of all ranks, from the parts of those that had any batches."""
    if reducer is Reducer.AVG:
        records = exact_sum([part.records for part in parts])
        return exact_sum([part.value for part in parts]) / records if records else math.nan
    return _reduce(reducer, [part.value for part in parts])


def weighted_mean(values: Sequence[float], records: Sequence[float]) -> float:
    """Return the mean of the values, weighted by records; NaN without records."""
    return reduce_ranks(Reducer.AVG, [reduce_batches(Reducer.AVG, values, records)])


def exact_sum(numbers: Sequence[float]) -> float:
    """Return the sum, correctly rounded; NaN and infinities propagate as usual.

    >>> exact_sum([1e16, 1.0, -1e16]), exact_sum([float("inf"), 1.0])
    (1.0, inf)
    """
    try:
        return math.fsum(numbers)
    except (ValueError, OverflowError):  # opposite infinities; beyond the largest float
        return float(sum(numbers))


def reducers_by_name(reducers: Any, names: Sequence[str]) -> dict[str, Reducer]:
    """Return the reducer of each metric, from what `evaluation_reducer` returned.

    Raises:
        ConfigError: The returned value is neither a Reducer, nor a dict with one for each metric.
    """
    where = "evaluation_reducer"
    if isinstance(reducers, Reducer):
        return dict.fromkeys(names, reducers)
    if not isinstance(reducers, Mapping):
        raise ConfigError(f"{where}: got {reducers!r}, expected a Reducer, or a dict of them")
    problems = []
    if missing := sorted(set(names) - reducers.keys()):
        problems.append(f"{where}: lacks {listed(missing)}, which evaluate_batch returns")
    if added := sorted(map(str, reducers.keys() - set(names))):
        problems.append(
            f"{where}: has {listed(added)}, which evaluate_batch does not return; "
            f"it returns {listed(sorted(names)) or 'nothing'}"
        )
    problems += [
        f"{where}: got {reducer!r} for {name!r}, expected a Reducer, such as Reducer.AVG"
        for name, reducer in reducers.items()
        if not isinstance(reducer, Reducer)
    ]
    if problems:
        raise ConfigError(problems)
    return dict(reducers)


def _reduce(reducer: Reducer, values: Sequence[float]) -> float:
    if reducer is Reducer.SUM:
        return exact_sum(values)
    if any(math.isnan(value) for value in values):  # max() and min() with NaN depend on the order
        return math.nan
    return max(values) if reducer is Reducer.MAX else min(values)
