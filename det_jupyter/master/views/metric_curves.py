"""Turns stored metrics records into curves, thinned on request, and into series. Pure.

A trial may have a million points, so they are kept in arrays until they are thinned.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isfinite, isnan, nan
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from det_jupyter.contract.messages import BATCHES, Curve, CurveKey, Series, SeriesQuery
from det_jupyter.contract.messages.curves import most_points, steps_per_epoch_of
from det_jupyter.contract.values.json_numbers import to_finite
from det_jupyter.master.views.series_pages import Columns, columns_of, rounded, within
from det_jupyter.master.views.series_tables import Numbers, Table, merged

_NOT_KNOWN = 0  # the run of records that were stored without


class Points:
    """The points of one metric of one trial, collected record by record."""

    def __init__(self) -> None:
        self._values = array("d")  # NaN where the value is not finite
        # First step, number of points, time, and the run.
        self._records: list[tuple[int, int, float, int]] = []

    def add(self, first: int, values: list[Any], at: float, run: int = _NOT_KNOWN) -> None:
        """Append the values of consecutive steps that a run has reported."""
        self._values.fromlist(_finite(values))
        self._records.append((first, len(values), at, run))

    def to_arrays(self, *, repeats: bool = False) -> Arrays:
        """Return the points by step; of those of one step the one that was reported last.

        Args:
            repeats: Return all of them in the order of reports, but once what a later run has
                reported again: it begins with the step of its checkpoint.
        """
        first, num, at, run = np.array(self._records, dtype=float).reshape(-1, 4).T
        counts = num.astype(np.int64)
        begins = np.cumsum(counts) - counts  # the place of each record's first point
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
        """Return the points at these places."""
        return Arrays(self.steps[places], self.values[places], self.times[places])


def _last_reports(points: Arrays, runs: Numbers, others: NDArray[np.int64]) -> list[int]:
    """Return the places of points among `others` that no later run has reported again.

    A run that reports a value twice means both; of those whose run is not known, that is equal
    values may be the same.

    Args:
        points: By step, and those of one step in the order of reports.
        runs: The run of each point.
        others: The places of all points but the last one of each step.
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
        if record["kind"] == "batch_metrics":
            group, first, columns = BATCHES, record["first"], record["values"]
        else:
            group, first = record["group"], record["steps_completed"]
            columns = {name: [value] for name, value in record["metrics"].items()}
        for name, values in columns.items():
            if not values:
                continue
            key = (trial_id, group, name)
            if key not in gathered.points:
                gathered.points[key] = Points()
            gathered.points[key].add(first, values, record["at"], record.get("run", _NOT_KNOWN))
            if per_epoch is not None:
                gathered.steps_per_epoch.setdefault(key, per_epoch)
    return gathered


class Gathered(NamedTuple):
    """Points by curve, and steps per epoch of the curves whose records contain it."""

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
        max_points: Thin each curve to about this many points (to fewer if there are very many
            curves); its extremes stay.
        repeats: Return all different points of a step, and not the last one only.
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
    if max_points is not None and len(points.steps) > max_points:
        points = points.at(kept_indices(points.values, max_points))
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


def kept_indices(values: Numbers, max_points: int) -> NDArray[np.int64]:
    """Return the indices of the points that a thinned curve keeps.

    These are the first and the last one, and in each of equal stretches those of the lowest and
    the highest value. A stretch without a value keeps a point, so that a gap stays visible.

    Args:
        values: More than `max_points`.
        max_points: At least 4.
    """
    num_stretches = (max_points - 2) // 2
    inner = np.arange(1, len(values) - 1)
    stretches = (inner - 1) * num_stretches // len(inner)
    # Infinity replaces NaN, which must be no extreme.
    for_low = np.where(np.isnan(values), np.inf, values)[inner]
    for_high = np.where(np.isnan(values), -np.inf, values)[inner]
    starts = np.flatnonzero(np.diff(stretches, prepend=-1))
    kept = [np.array([0, len(values) - 1])]
    for extreme, found in (
        (for_low, np.minimum.reduceat(for_low, starts)),
        (for_high, np.maximum.reduceat(for_high, starts)),
    ):
        places = np.flatnonzero(extreme == np.repeat(found, np.diff([*starts, len(inner)])))
        _, firsts = np.unique(stretches[places], return_index=True)
        kept.append(inner[places[firsts]])
    return np.unique(np.concatenate(kept))


def to_metric_series(
    records: Iterable[tuple[int, dict[str, Any]]], query: SeriesQuery
) -> list[Series]:
    """Return a trial's metrics as series; values that are not finite have no points."""
    points = {
        (group, name): found.to_arrays()
        for (_, group, name), found in gather(records).points.items()
        if (query.names is None or name in query.names)
        and (query.sources is None or group in query.sources)
    }
    tables = {key: _to_table(arrays, query) for key, arrays in sorted(points.items())}
    tables = {key: table for key, table in tables.items() if len(table.at)}
    columns = columns_of([table.at for table in tables.values()], query, len(tables))
    return [_to_series(key, table, columns) for key, table in tables.items()]


def _to_table(points: Arrays, query: SeriesQuery) -> Table:
    x = points.times if query.axis == "time" else points.steps.astype(float)
    rows = np.isfinite(points.values) & within(x, query)
    values = points.values[rows]
    statistics = {"num": np.ones(len(values)), "total": values, "low": values, "high": values}
    return Table(x[rows], {("", name): column for name, column in statistics.items()})


def _to_series(key: tuple[str, str], table: Table, columns: Columns) -> Series:
    group, name = key
    with np.errstate(over="ignore"):  # a sum of the largest numbers is not finite
        drawn = merged(table, columns.indices(table.at))
    mid = drawn.get("", "total") / drawn.get("", "num")
    low, high = drawn.get("", "low"), drawn.get("", "high")
    return Series(
        source=group,
        name=name,
        title=name,
        x=drawn.at.tolist(),
        low=rounded(low),
        mid=rounded(np.clip(mid, low, high)),
        high=rounded(high),
    )
