"""Turns stored records of metrics into curves, thinned on request, and into tables. Pure.

A trial may have a million points, so they are kept in arrays until they are thinned.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, isnan, nan
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from det_jupyter.contract.messages import Curve, CurveKey, SeriesQuery
from det_jupyter.contract.messages.curves import (
    landmarks,
    metrics_in,
    most_points,
    steps_per_epoch_of,
)
from det_jupyter.contract.values.json_numbers import to_finite
from det_jupyter.master.views.series_tables import Numbers, Table

_NOT_KNOWN = 0  # the run of records that were stored without a run


class Points:
    """The points of one metric of one trial, collected record by record."""

    def __init__(self) -> None:
        self._values = array("d")  # NaN where the value is not finite
        # For each record: first step, number of points, time, and run.
        self._records: list[tuple[int, int, float, int]] = []

    def add(self, first: int, values: list[Any], at: float, run: int = _NOT_KNOWN) -> None:
        """Append the values of consecutive steps that a run has reported."""
        self._values.fromlist(_finite(values))
        self._records.append((first, len(values), at, run))

    def to_arrays(self, *, repeats: bool = False) -> Arrays:
        """Return the points by step; of several points at one step, the last reported one.

        Args:
            repeats: Return all points of a step, in the order of reports. A value that a later run
                has reported again is returned once: a run repeats the steps after its checkpoint.
        """
        first, num, at, run = np.array(self._records, dtype=float).reshape(-1, 4).T
        counts = num.astype(np.int64)
        begins = np.cumsum(counts) - counts  # index of each record's first point
        steps = np.arange(len(self._values)) + np.repeat(first.astype(np.int64) - begins, counts)
        points = Arrays(steps, np.array(self._values), np.repeat(at, counts))
        if np.all(np.diff(steps) > 0):  # the usual case
            return points
        order = np.argsort(steps, kind="stable")
        points = points.at(order)
        is_last = np.append(np.diff(points.steps) > 0, True)
        if repeats:
            runs = np.repeat(run, counts)[order]
            is_last[_last_reports(points, runs, np.flatnonzero(~is_last))] = True
        return points.at(np.flatnonzero(is_last))


@dataclass(frozen=True, slots=True)
class Arrays:
    """Steps, values (NaN where not finite) and times of points."""

    steps: NDArray[np.int64]
    values: Numbers
    times: Numbers

    def at(self, places: NDArray[np.int64]) -> Arrays:
        """Return the points at these indices."""
        return Arrays(self.steps[places], self.values[places], self.times[places])


def _last_reports(points: Arrays, runs: Numbers, others: NDArray[np.int64]) -> list[int]:
    """Return the indices in `others` of points that no later run has reported again.

    If one run reports several values at a step, all of them count. Among points whose run is not
    known, equal values count once.

    Args:
        points: The points by step; points at one step are in the order of reports.
        runs: The run of each point.
        others: The indices of all points except the last one of each step.
    """
    nth: Counter[tuple[int, float | None, float]] = Counter()
    last: dict[tuple[int, float | None, int], int] = {}
    for place in np.union1d(others, others + 1).tolist():
        step, number, run = int(points.steps[place]), float(points.values[place]), runs[place]
        value = None if isnan(number) else number
        nth[step, value, run] += run != _NOT_KNOWN
        last[step, value, nth[step, value, run]] = place
    return list(last.values())


def _finite(values: list[Any]) -> list[float]:
    if set(map(type, values)) == {float} and isfinite(sum(values)):  # the usual case, and fast
        return values
    return [nan if (number := to_finite(value)) is None else number for value in values]


def gather(records: Iterable[tuple[int, dict[str, Any]]]) -> Gathered:
    """Return the points of every metric of every trial, from records in stored order."""
    gathered = Gathered({}, {})
    for trial_id, record in records:
        per_epoch = steps_per_epoch_of(record)
        for group, name, first, values in metrics_in(record):
            key = (trial_id, group, name)
            if key not in gathered.points:
                gathered.points[key] = Points()
            gathered.points[key].add(first, values, record["at"], record.get("run", _NOT_KNOWN))
            if per_epoch is not None:
                gathered.steps_per_epoch.setdefault(key, per_epoch)
    return gathered


class Gathered(NamedTuple):
    """Points by curve, and the steps per epoch of curves whose records contain them."""

    points: dict[CurveKey, Points]
    steps_per_epoch: dict[CurveKey, float]


def to_curves(
    records: Iterable[tuple[int, dict[str, Any]]],
    *,
    max_points: int | None = None,
    repeats: bool = False,
) -> Iterator[Curve]:
    """Yield every metric of every trial as a curve.

    Args:
        max_points: Thin each curve to about this many points (fewer if there are very many
            curves); its extremes are kept.
        repeats: Return all different points of a step, not only the last one.
    """
    gathered = gather(records)
    if max_points is not None:
        max_points = min(max_points, most_points(len(gathered.points)))
    points, steps_per_epoch = gathered
    return (
        _to_curve(
            key,
            points.pop(key).to_arrays(repeats=repeats),
            steps_per_epoch.get(key),
            max_points,
        )
        for key in sorted(points)
    )


def _to_curve(
    key: CurveKey, points: Arrays, per_epoch: float | None, max_points: int | None
) -> Curve:
    if max_points is not None:
        values = cast("Sequence[float]", points.values)
        points = points.at(np.array(landmarks(values, max_points, extremes_of=_extremes)))
    trial_id, group, name = key
    return Curve.model_construct(
        trial_id=trial_id,
        group=group,
        name=name,
        steps=points.steps.tolist(),
        values=[None if isnan(value) else value for value in points.values.tolist()],
        times=points.times.tolist(),
        steps_per_epoch=per_epoch,
    )


def _extremes(values: Numbers) -> Iterator[int]:
    """Yield the same indices as `curves.extremes`, of an array, in a tenth of the time."""
    lowest = int(values.argmin())  # the first NaN, if there is one
    yield lowest
    if not isnan(values[lowest]):
        yield int(values.argmax())
    elif not np.isnan(values).all():
        yield int(np.nanargmin(values))
        yield int(np.nanargmax(values))


def to_tables(
    records: Iterable[tuple[int, dict[str, Any]]], query: SeriesQuery
) -> list[tuple[str, Table]]:
    """Return group and table of each metric of a trial that the query requests."""
    points = gather(records).points
    return [
        (group, _to_table(name, points[trial_id, group, name].to_arrays()))
        for trial_id, group, name in sorted(points)
        if (query.names is None or name in query.names)
        and (query.sources is None or group in query.sources)
    ]


def _to_table(name: str, points: Arrays) -> Table:
    points = points.at(np.flatnonzero(np.isfinite(points.values)))
    values = points.values
    statistics = {"num": np.ones(len(values)), "total": values, "low": values, "high": values}
    columns = {(name, statistic): column for statistic, column in statistics.items()}
    return Table(points.times, columns | {("", "first"): points.steps.astype(float)})
