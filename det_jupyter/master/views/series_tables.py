"""Measured numbers as tables, and how many of their rows become one. Pure.

A table has a row for each sample, or for each interval of a rank's time, and columns by name and
statistic. What becomes of a column when rows are merged follows from its statistic:

    system    num       how many values                  sum
              total     their sum                        sum
              low       the smallest                     min
              high      the largest                      max
    timings   num       how many durations of a part     sum
              total     their sum                        sum
              low, high its seconds per batch            min, max
              max       the longest of them              max
              p50, p95  of each interval, times `num`    sum: a mean of percentiles, an estimate

So a mean is `total / num`, and merging twice gives what merging once gives. The name "" has what
is true of an interval as a whole: batches, samples, seconds (sums) and first (min).

A part that did not occur took no time: 0. What was not measured is NaN, and its num is 0.
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

Kind = Literal["system", "timings"]
Column = tuple[str, str]  # name, statistic
Numbers = NDArray[np.float64]

COUNTER = "counter."  # begins the name of a user's counter
_LOWEST = {"low", "first"}
_HIGHEST = {"high", "max"}
_SUMS = {"num", "total", "batches", "samples", "seconds"}  # kept with all their digits
_HEADER = struct.Struct("<II")  # number of rows, bytes of the names


@dataclass(frozen=True, slots=True)
class Table:
    """Rows in any order: when each begins, in UTC seconds, and its columns."""

    at: Numbers
    columns: dict[Column, Numbers]

    def where(self, rows: NDArray[np.bool_]) -> Table:
        return Table(self.at[rows], {c: values[rows] for c, values in self.columns.items()})

    def get(self, name: str, statistic: str) -> Numbers:
        """Return a column; zeros for one that there is not."""
        return self.columns.get((name, statistic), np.zeros(len(self.at)))

    @property
    def names(self) -> list[str]:
        """What was measured, in the order of its first appearance."""
        return list(dict.fromkeys(name for name, _ in self.columns if name))


def of_samples(samples: Sequence[tuple[float, Mapping[str, float]]]) -> Table:
    """Return a table of samples of one source: moment and values by name."""
    names = dict.fromkeys(name for _, values in samples for name in values)
    columns: dict[Column, Numbers] = {}
    for name in names:
        value = np.array([values.get(name, np.nan) for _, values in samples], dtype=float)
        is_there = ~np.isnan(value)
        columns[name, "num"] = is_there.astype(float)
        columns[name, "total"] = np.where(is_there, value, 0.0)
    return _with_extremes(Table(np.array([at for at, _ in samples], dtype=float), columns))


def of_times(records: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of the records of one rank, `StepTimes` as JSON."""
    columns: dict[Column, Numbers] = {
        ("", field): np.array([record[field] for record in records], dtype=float)
        for field in ("first", "batches", "samples", "seconds")
    }
    for part in dict.fromkeys(name for record in records for name in record["parts"]):
        nothing = (0, 0.0, 0.0, 0.0, 0.0)
        rows = [record["parts"].get(part, nothing) for record in records]
        num, total, p50, p95, longest = np.array(rows, dtype=float).T
        columns[part, "num"], columns[part, "total"] = num, total
        columns[part, "p50"], columns[part, "p95"] = p50 * num, p95 * num
        columns[part, "max"] = longest
    for name in dict.fromkeys(name for record in records for name in record["counters"]):
        grown = [record["counters"].get(name, 0.0) for record in records]
        columns[COUNTER + name, "total"] = np.array(grown, dtype=float)
    at = np.array([record["at"] - record["seconds"] for record in records], dtype=float)
    return _with_extremes(Table(at, columns))


def _with_extremes(table: Table) -> Table:
    """Add the extremes of rows that are as they were measured: of each, its one value."""
    columns = dict(table.columns)
    for name in table.names:
        value = per_unit(table, name)
        columns[name, "low"] = columns[name, "high"] = value
    return Table(table.at, columns)


def per_unit(table: Table, name: str) -> Numbers:
    """Return the mean of a name in each row: of its values, or of timings per batch."""
    is_of_batches = ("", "batches") in table.columns
    num = np.maximum(table.get("", "batches"), 1.0) if is_of_batches else table.get(name, "num")
    with np.errstate(invalid="ignore"):
        return table.get(name, "total") / np.where(num > 0, num, np.nan)


def joined(tables: Iterable[Table]) -> Table:
    """Return the rows of all tables, one after the other."""
    parts = list(tables)
    columns = dict.fromkeys(column for table in parts for column in table.columns)
    is_of_batches = ("", "batches") in columns
    joined: dict[Column, Numbers] = {}
    for column in columns:
        is_extreme = column[1] in _LOWEST | _HIGHEST
        filler = np.nan if is_extreme and not is_of_batches else 0.0
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
    """Return a row for each bin that has rows, in their order; `bins` has the bin of each row."""
    if not len(bins):
        return table
    order = np.argsort(bins, kind="stable")
    starts = np.flatnonzero(np.diff(bins[order], prepend=bins[order[0]] - 1))
    merged: dict[Column, Numbers] = {}
    for column, values in table.columns.items():
        merge: np.ufunc = np.add
        if column[1] in _LOWEST:
            merge = np.fmin
        elif column[1] in _HIGHEST:
            merge = np.fmax
        merged[column] = merge.reduceat(values[order], starts)
    return Table(np.minimum.reduceat(table.at[order], starts), merged)


def rolled_up(table: Table, step_s: float) -> Table:
    """Return a row for each step of time that has rows."""
    return merged(table, np.floor(table.at / step_s).astype(np.int64))


def to_bytes(table: Table, *, is_measured: bool) -> bytes:
    """Return a table as compressed bytes; of rows that are as measured, without extremes."""
    left_out = {"low", "high"} if is_measured else set()
    kept = [column for column in table.columns if column[1] not in left_out]
    names = json.dumps(kept).encode()
    arrays = [table.columns[column].astype(_type_of(column)) for column in kept]
    head = _HEADER.pack(len(table.at), len(names)) + names
    # Bytes of equal weight stand side by side: of similar numbers most are then equal.
    body = b"".join(_transposed(array) for array in [table.at, *arrays])
    return zlib.compress(head + body)


def from_bytes(blob: bytes, *, is_measured: bool) -> Table:
    """Return the table that `to_bytes` made bytes of.

    Raises:
        ValueError: They are damaged.
    """
    try:
        data = zlib.decompress(blob)
        num, length = _HEADER.unpack_from(data)
        place = _HEADER.size + length
        kept = [(name, statistic) for name, statistic in json.loads(data[_HEADER.size : place])]
        arrays = []
        for kind in ["f8", *map(_type_of, kept)]:
            size = num * np.dtype(kind).itemsize
            arrays.append(_restored(data[place : place + size], kind, num))
            place += size
    except (zlib.error, struct.error, TypeError) as error:
        raise ValueError(f"stored numbers cannot be read: {error}") from error
    table = Table(arrays[0], dict(zip(kept, arrays[1:], strict=True)))
    return _with_extremes(table) if is_measured else table


def _type_of(column: Column) -> str:
    return "f8" if column[1] in _SUMS or column == ("", "first") else "f4"


def _transposed(array: NDArray[Any]) -> bytes:
    return array.view(np.uint8).reshape(len(array), array.itemsize).T.tobytes()


def _restored(data: bytes, kind: str, num: int) -> Numbers:
    size = np.dtype(kind).itemsize
    rows = np.frombuffer(data, np.uint8).reshape(size, num).T
    return np.ascontiguousarray(rows).view(kind).reshape(num).astype(float)
