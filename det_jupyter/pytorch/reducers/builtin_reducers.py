"""Reducing a metric over the batches and ranks of a validation.

Sums are exact before they are rounded (`math.fsum`: Shewchuk, "Adaptive precision floating-point
arithmetic", 1997), so neither the order of the batches nor how they were divided among the ranks
changes more of a result than its last bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from det_jupyter.errors import ConfigError


class Reducer(Enum):
    """How a validation metric is reduced. AVG weighs each batch by its records."""

    AVG = "avg"
    SUM = "sum"
    MAX = "max"
    MIN = "min"


@dataclass(frozen=True, slots=True)
class MetricPart:
    """One rank's part of a metric: the reduced value of its batches, and their records."""

    value: float  # for AVG, the sum of values times records
    records: float


def reduce_batches(
    reducer: Reducer, values: Sequence[float], records: Sequence[float]
) -> MetricPart:
    """Return one rank's part, of the values and records of its batches, at least one."""
    if reducer is Reducer.AVG:
        return MetricPart(exact_sum(_weighed(values, records)), exact_sum(records))
    return MetricPart(_reduce(reducer, values), exact_sum(records))


def reduce_ranks(reducer: Reducer, parts: Sequence[MetricPart]) -> float:
    """Return the job's number from the parts of those ranks that had any batches."""
    if reducer is Reducer.AVG:
        records = exact_sum([part.records for part in parts])
        return exact_sum([part.value for part in parts]) / records if records else math.nan
    return _reduce(reducer, [part.value for part in parts])


def weighted_mean(values: Sequence[float], records: Sequence[float]) -> float:
    """Return the mean of the values, each weighted by its records; NaN if there are none."""
    return reduce_ranks(Reducer.AVG, [reduce_batches(Reducer.AVG, values, records)])


def exact_sum(numbers: Sequence[float]) -> float:
    """Return the sum, correctly rounded; NaN and infinities take part as usual.

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
        ConfigError: It is neither a Reducer, nor a dict with one for each of the metrics.
    """
    where = "evaluation_reducer"
    if isinstance(reducers, Reducer):
        return dict.fromkeys(names, reducers)
    if not isinstance(reducers, Mapping):
        raise ConfigError(f"{where}: got {reducers!r}, expected a Reducer, or a dict of them")
    problems = []
    if missing := sorted(set(names) - reducers.keys()):
        problems.append(f"{where}: lacks {_listed(missing)}, which evaluate_batch returns")
    if added := sorted(map(str, reducers.keys() - set(names))):
        problems.append(
            f"{where}: has {_listed(added)}, which evaluate_batch does not return; "
            f"it returns {_listed(sorted(names)) or 'nothing'}"
        )
    problems += [
        f"{where}: got {reducer!r} for {name!r}, expected a Reducer, such as Reducer.AVG"
        for name, reducer in reducers.items()
        if not isinstance(reducer, Reducer)
    ]
    if problems:
        raise ConfigError(problems)
    return dict(reducers)


def _weighed(values: Iterable[float], records: Iterable[float]) -> list[float]:
    """Return the values times their records. Without records nothing counts, not even NaN."""
    pairs = zip(values, records, strict=True)
    return [value * count if count else 0.0 for value, count in pairs]


def _reduce(reducer: Reducer, values: Sequence[float]) -> float:
    if reducer is Reducer.SUM:
        return exact_sum(values)
    if any(math.isnan(value) for value in values):  # else it would depend on the order
        return math.nan
    return max(values) if reducer is Reducer.MAX else min(values)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
