"""Turns tables of measured numbers into the series of a picture. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from det_jupyter.contract.messages import Series, SeriesQuery
from det_jupyter.contract.messages.queries import MAX_POINTS
from det_jupyter.contract.values.measures import (
    PARTS,
    RATE,
    STATISTICS,
    SYSTEM,
    WHOLE,
    Measure,
    measure_of,
)
from det_jupyter.master.views.series_tables import Numbers, Table, merged, per_unit

_MIN_COLUMNS = 20  # series are left out rather than drawn in fewer columns
_ORDER = {name: place for place, name in enumerate((*SYSTEM, *PARTS))}
_DIGITS = 6  # significant digits of a value in a picture


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a picture: equal intervals of its axis."""

    begin: float
    width: float
    num: int

    def indices(self, x: Numbers) -> NDArray[np.int64]:
        """Return the index of the column of each x; the end of the axis is in the last column."""
        return np.minimum((x - self.begin) // self.width, self.num - 1).astype(np.int64)


def columns_of(xs: Sequence[Numbers], query: SeriesQuery, num: int) -> Columns:
    """Return columns between the ends in the query; without these, between the extremes."""
    low = min((float(x.min()) for x in xs if len(x)), default=0.0)
    high = max((float(x.max()) for x in xs if len(x)), default=0.0)
    low = low if query.since is None else query.since
    high = high if query.until is None else query.until
    width = (high - low) / num
    return Columns(low, width if width > 0 else 1.0, num)


def to_series(tables: Iterable[tuple[str, Table]], query: SeriesQuery) -> list[Series]:
    """Return the requested series, given sources with their tables."""
    found = [
        (source, table.where(within(axis_of(table, query.axis), query)))
        for source, table in sorted(tables, key=itemgetter(0))
        if query.sources is None or source in query.sources
    ]
    kept = [(source, table) for source, table in found if len(table.at)]
    num_series = sum(len(_requested(table, query)) for _, table in kept)
    xs = [axis_of(table, query.axis) for _, table in kept]

    def drawn(num_columns: int) -> list[Series]:
        columns = columns_of(xs, query, num_columns)
        return [one for pair in kept for one in _of_source(*pair, query, columns)]

    num_columns = max(1, min(query.columns, MAX_POINTS // max(1, num_series)))
    series = drawn(num_columns)
    num_points = sum(len(one.x) for one in series)
    if num_points > query.max_points:
        longest = max(len(one.x) for one in series)
        fewer = max(_MIN_COLUMNS, longest * query.max_points // num_points)
        series = drawn(min(num_columns, fewer))
    return series


def fitting(series: Sequence[Series], query: SeriesQuery) -> list[Series]:
    """Return the first series, as many as the query allows."""
    used = accumulate(max(1, len(one.x)) for one in series)
    return [one for one, num in zip(series, used, strict=True) if num <= query.max_points]


def axis_of(table: Table, axis: str) -> Numbers:
    """Return the position of each row's beginning on an axis, in steps or UTC seconds."""
    return table.get("", "first") if axis == "batches" else table.at


def within(x: Numbers, query: SeriesQuery) -> NDArray[np.bool_]:
    """Return which positions on an axis are in the interval of the query."""
    since = -np.inf if query.since is None else query.since
    until = np.inf if query.until is None else query.until
    return (x >= since) & (x <= until)


def _of_source(
    source: str, table: Table, query: SeriesQuery, columns: Columns
) -> Iterator[Series]:
    drawn = merged(table, columns.indices(axis_of(table, query.axis)))
    if query.of == "timings":
        drawn = _without_remainders(drawn)
    x = np.floor(axis_of(drawn, query.axis) * 1000) / 1000
    for name, measure in _requested(table, query).items():
        low, mid, high = _values(drawn, name)
        is_known = np.isfinite(mid)
        if is_known.any():
            yield Series(
                source=source,
                name=name,
                title=measure.title,
                unit=measure.unit,
                x=x[is_known].tolist(),
                low=rounded(low[is_known]),
                mid=rounded(mid[is_known]),
                high=rounded(high[is_known]),
            )


def _without_remainders(drawn: Table) -> Table:
    """Return timings without columns in which no batch has ended, such as after the last batch.

    Such columns have no time per batch. Columns of validations and checkpoints, which may be long,
    are kept; so are all columns of a trial whose batches are not timed.
    """
    has_batches = drawn.get("", "batches") > 0
    is_apart = sum(drawn.get(part, "total") for part in ("validation", "checkpoint")) > 0
    return drawn.where(has_batches | is_apart) if has_batches.any() else drawn


def _requested(table: Table, query: SeriesQuery) -> dict[str, Measure]:
    """Return the requested names of a table; if none are requested, all but percentiles."""
    if query.of == "metrics":
        return {name: Measure(name) for name in table.names}
    # Names that users have defined come last.
    names = {
        name: measure_of(name)
        for name in sorted(table.names, key=lambda name: _ORDER.get(name, len(_ORDER)))
    }
    if query.of == "timings":
        names |= {name: measure_of(name) for name in (WHOLE, RATE)}
    if query.names is None:
        return names
    found = {name: names[name] for name in query.names if name in names}
    for name in query.names:
        part, _, statistic = name.rpartition(".")
        if name not in found and statistic in STATISTICS and (part, "max") in table.columns:
            title = f"{names[part].title}, {STATISTICS[statistic]}"
            found[name] = Measure(title, names[part].unit)
    return found


def _values(drawn: Table, name: str) -> tuple[Numbers, Numbers, Numbers]:
    """Return the smallest value, the mean and the largest value of each column."""
    part, _, statistic = name.rpartition(".")
    if (name, "total") in drawn.columns:
        low, mid, high = drawn.get(name, "low"), per_unit(drawn, name), drawn.get(name, "high")
        return low, mid if drawn.is_of_times else mid.clip(low, high), high
    seconds = drawn.get("", "seconds")
    if name == RATE:
        # Without a batch, as after the last one, the rate is unknown and not 0.
        has_batches = drawn.get("", "batches") > 0
        mid = np.where(has_batches, _divided(drawn.get("", "samples"), seconds), np.nan)
    elif name == WHOLE:
        mid = _divided(seconds, drawn.get("", "batches"))
    elif statistic == "max":
        mid = drawn.get(part, "max")
    else:
        mid = _divided(drawn.get(part, statistic), drawn.get(part, "num"))
    return mid, mid, mid


def _divided(total: Numbers, num: Numbers) -> Numbers:
    return total / np.where(num > 0, num, np.nan)


def rounded(values: Numbers) -> list[float]:
    """Round values to six significant digits, which is as much as a picture can show.

    >>> rounded(np.array([0.12345678, 1e9 / 3, 2.0]))
    [0.123457, 333333000.0, 2.0]
    """
    with np.errstate(all="ignore"):  # zero and the largest numbers stay as they are
        digits = _DIGITS - 1 - np.floor(np.log10(np.abs(values)))
        power = 10.0 ** np.abs(digits)
        # Powers of ten are whole numbers, so the results have the shortest decimal form.
        large, small = np.rint(values / power) * power, np.rint(values * power) / power
        result = np.where(digits >= 0, small, large)
    return list(np.where(np.isfinite(result), result, values).tolist())


def superseded(table: Table, cuts: Sequence[int]) -> Table:
    """Return a run's rows, without rows whose batches were trained again.

    Args:
        cuts: Steps after which the trial trained again.
    """
    if not cuts:
        return table
    return table.where(table.get("", "first") <= min(cuts))
