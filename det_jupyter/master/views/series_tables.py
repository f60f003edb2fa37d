"""Tables of measured numbers, merging of their rows, and their packed form. Pure.

A table has a row for each sample, or for each interval of a rank's times, and columns by name and
statistic. How a column is merged depends on its statistic:

    system    num       number of values                 sum
              total     their sum                        sum
              low       the smallest                     min
              high      the largest                      max
    timings   num       number of durations of a part    sum
              total     their sum                        sum
              low, high its seconds per batch            min, max
              max       the longest of them              max
              p50, p95  of each interval, times `num`    sum: a mean of percentiles, an estimate

So a mean is `total / num`, and merging twice gives the same as merging once. The name "" has the
columns of an interval as a whole: batches, samples, seconds (sums) and first (min).

The time of a part that did not occur is 0. A value that was not measured is NaN, and its num is 0.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from det_jupyter.contract.run.journal import PartTimes
from det_jupyter.contract.values.measures import COUNTER

Kind = Literal["system", "timings"]
Column = tuple[str, str]  # name, statistic
Numbers = NDArray[np.float64]

_OF_INTERVAL = ("first", "batches", "samples", "seconds")
_ABSENT = PartTimes(0, 0.0, 0.0, 0.0, 0.0)
# Columns that are not sums.
_EXTREMES = {"low": np.fmin, "first": np.fmin, "high": np.fmax, "max": np.fmax}
_WIDE = {"num", "total", "first", "batches", "samples", "seconds"}  # columns packed as float64
_HEADER = struct.Struct("<II")  # number of rows, bytes of the names


@dataclass(frozen=True, slots=True)
class Table:
    """Rows in any order: the UTC seconds at which each row begins, and the columns."""

    at: Numbers
    columns: dict[Column, Numbers]

    def where(self, rows: NDArray[np.bool_]) -> Table:
        if rows.all():
            return self
        return Table(self.at[rows], {c: values[rows] for c, values in self.columns.items()})

    def get(self, name: str, statistic: str) -> Numbers:
        """Return a column; zeros if there is none."""
        return self.columns.get((name, statistic), np.zeros(len(self.at)))

    @property
    def names(self) -> list[str]:
        """The names of the measured values, in order of first appearance."""
        return [name for name, statistic in self.columns if statistic == "total"]

    @property
    def is_of_times(self) -> bool:
        return ("", "batches") in self.columns


def of_samples(samples: Sequence[tuple[float, Mapping[str, float]]]) -> Table:
    """Return a table of samples of one source, each with its time and its values by name."""
    names = dict.fromkeys(name for _, values in samples for name in values)
    columns: dict[Column, Numbers] = {}
    for name in names:
        value = np.array([values.get(name, np.nan) for _, values in samples], dtype=float)
        is_known = ~np.isnan(value)
        columns[name, "num"] = is_known.astype(float)
        columns[name, "total"] = np.where(is_known, value, 0.0)
    return _with_extremes(Table(np.array([at for at, _ in samples], dtype=float), columns))


def of_times(records: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of one rank's `StepTimes`, parsed from JSON."""
    columns: dict[Column, Numbers] = {
        ("", field): np.array([record[field] for record in records], dtype=float)
        for field in _OF_INTERVAL
    }
    for part in dict.fromkeys(name for record in records for name in record["parts"]):
        rows = [record["parts"].get(part, _ABSENT) for record in records]
        times = PartTimes(*np.array(rows, dtype=float).T)
        weighted = times._replace(p50=times.p50 * times.num, p95=times.p95 * times.num)
        columns |= {(part, name): values for name, values in weighted._asdict().items()}
    for name in dict.fromkeys(name for record in records for name in record["counters"]):
        increments = [record["counters"].get(name, 0.0) for record in records]
        columns[COUNTER + name, "total"] = np.array(increments, dtype=float)
    at = np.array([record["at"] - record["seconds"] for record in records], dtype=float)
    return _with_extremes(Table(at, columns))


def _with_extremes(table: Table) -> Table:
    """Add the columns low and high of rows that are not merged; both are the row's one value."""
    columns = dict(table.columns)
    for name in table.names:
        value = per_unit(table, name)
        columns[name, "low"] = columns[name, "high"] = value
    return Table(table.at, columns)


def per_unit(table: Table, name: str) -> Numbers:
    """Return the mean of a name in each row: of samples, or of timings the time per batch."""
    batches = np.maximum(table.get("", "batches"), 1.0)
    num = batches if table.is_of_times else table.get(name, "num")
    with np.errstate(invalid="ignore"):
        return table.get(name, "total") / np.where(num > 0, num, np.nan)


def joined(tables: Iterable[Table]) -> Table:
    """Return a table with the rows of all tables, one after the other."""
    parts = list(tables)
    columns = dict.fromkeys(column for table in parts for column in table.columns)
    is_of_times = any(table.is_of_times for table in parts)
    joined: dict[Column, Numbers] = {}
    for column in columns:
        filler = np.nan if column[1] in _EXTREMES and not is_of_times else 0.0
        joined[column] = np.concatenate(
            [
                found
                if (found := table.columns.get(column)) is not None
                else np.full(len(table.at), filler)
                for table in parts
            ]
        )
    at = np.concatenate([table.at for table in parts]) if parts else np.zeros(0)
    return Table(at, joined)


def merged(table: Table, bins: NDArray[np.int64]) -> Table:
    """Merge the rows of each bin into one, in the order of the bins.

    Args:
        bins: The bin of each row.
    """
    if not len(bins):
        return table
    is_in_order = bool((bins[1:] >= bins[:-1]).all())  # the usual case
    order: slice | NDArray[np.intp] = slice(None)
    if not is_in_order:
        order = np.argsort(bins, kind="stable")
        bins = bins[order]
    starts = np.flatnonzero(np.diff(bins, prepend=bins[0] - 1))
    merged: dict[Column, Numbers] = {}
    for column, values in table.columns.items():
        merge = _EXTREMES.get(column[1], np.add)
        with np.errstate(over="ignore"):  # a sum of the largest numbers is not finite
            merged[column] = merge.reduceat(values[order], starts)
    return Table(np.minimum.reduceat(table.at[order], starts), merged)


def rolled_up(table: Table, step_s: float) -> Table:
    """Merge the rows within each `step_s` seconds."""
    return merged(table, np.floor(table.at / step_s).astype(np.int64))


def to_bytes(table: Table, *, is_measured: bool) -> bytes:
    """Pack a table into compressed bytes.

    Args:
        is_measured: Whether the rows are not merged; then low and high are left out.
    """
    left_out = {"low", "high"} if is_measured else set()
    kept = [column for column in table.columns if column[1] not in left_out]
    names = json.dumps(kept).encode()
    arrays = [table.columns[column].astype(_type_of(column)) for column in kept]
    head = _HEADER.pack(len(table.at), len(names)) + names
    # The first bytes of a column's numbers come first, then the second bytes, and so on: similar
    # numbers share most of them, and runs of equal bytes compress well.
    body = b"".join(
        array.view(np.uint8).reshape(len(array), array.itemsize).T.tobytes()
        for array in [table.at, *arrays]
    )
    return zlib.compress(head + body)


def from_bytes(blob: bytes) -> Table:
    """Return the table that `to_bytes` has packed; it always has low and high.

    Raises:
        ValueError: The bytes are damaged.
    """
    try:
        data = zlib.decompress(blob)
        num, length = _HEADER.unpack_from(data)
        place = _HEADER.size + length
        kept = [(name, statistic) for name, statistic in json.loads(data[_HEADER.size : place])]
        arrays = []
        for kind in ["f8", *map(_type_of, kept)]:
            itemsize = np.dtype(kind).itemsize
            end = place + num * itemsize
            rows = np.frombuffer(data[place:end], np.uint8).reshape(itemsize, num).T
            arrays.append(np.ascontiguousarray(rows).view(kind).reshape(num).astype(float))
            place = end
    except (zlib.error, struct.error, TypeError) as error:
        raise ValueError(f"stored numbers cannot be read: {error}") from error
    table = Table(arrays[0], dict(zip(kept, arrays[1:], strict=True)))
    is_merged = any(statistic == "low" for _, statistic in kept)
    return table if is_merged else _with_extremes(table)


def _type_of(column: Column) -> str:
    return "f8" if column[1] in _WIDE else "f4"
