"""Turns measured numbers into columns: series, a row for each point, and stored timings. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from det_jupyter.client.tables import Columns
from det_jupyter.contract.messages import Series, TimingsView

STATISTICS = ("p50", "p95", "max")


def system_columns(series: Iterable[Series]) -> Columns:
    """Return what machines and processes did, by time, source and name."""
    columns: Columns = {
        name: [] for name in ("time", "source", "name", "unit", "min", "mean", "max")
    }
    for one in series:
        num = len(one.x)
        columns["time"] += one.x
        columns["source"] += [one.source] * num
        columns["name"] += [one.name] * num
        columns["unit"] += [one.unit] * num
        columns["min"] += one.low
        columns["mean"] += one.mid
        columns["max"] += one.high
    return columns


def by_trial(columns: Mapping[int, Columns]) -> Columns:
    """Return the rows of several trials, given by their numbers, with a column `trial`."""
    joined: Columns = {"trial": []}
    for trial_id, own in columns.items():
        joined["trial"] += [trial_id] * len(next(iter(own.values()), []))
        for name, values in own.items():
            joined.setdefault(name, []).extend(values)
    return joined


def step_columns(series: Iterable[Series]) -> Columns:
    """Return where the time of ranks went: `time`, `rank`, `part`, `per_batch`, p50, p95, max.

    The series are those of parts, and of their statistics, named `forward.p50`.
    """
    found = {(one.source, one.name): one for one in series}
    columns: Columns = {name: [] for name in ("time", "rank", "part", "per_batch", *STATISTICS)}
    for (source, part), one in found.items():
        if part.rpartition(".")[2] in STATISTICS or one.unit == "1/s":
            continue
        columns["time"] += one.x
        columns["rank"] += [int(source.removeprefix("rank:"))] * len(one.x)
        columns["part"] += [part] * len(one.x)
        columns["per_batch"] += one.mid
        for statistic in STATISTICS:
            other = found.get((source, f"{part}.{statistic}"))
            known = dict(zip(other.x, other.mid, strict=True)) if other is not None else {}
            columns[statistic] += [known.get(x) for x in one.x]
    return columns


_NS_PER_S = 1e9
_WHOLE = "batch"  # from one batch to the next


def timing_columns(records: Iterable[TimingsView]) -> dict[str, list[float | None]]:
    """Return timings as lists of one length, by name, in seconds; empty if there are none."""
    columns: dict[str, list[float | None]] = {}
    num_batches = 0
    for record in records:
        for name, values in _columns_of(record).items():
            columns.setdefault(name, [None] * num_batches).extend(values)
        num_batches += len(record.records)
        for values in columns.values():
            values += [None] * (num_batches - len(values))
    return columns


def _columns_of(record: TimingsView) -> dict[str, list[float | None]]:
    whole = record.durations_ns[_WHOLE]
    first = record.first - 1
    columns: dict[str, list[float | None]] = {
        "batch_idx": list(range(first, first + len(record.records))),
        "samples_per_second": [
            None if not duration else num * _NS_PER_S / duration
            for num, duration in zip(record.records, whole, strict=True)
        ],
    }
    for part, durations in record.durations_ns.items():
        columns[part] = [None if ns is None else ns / _NS_PER_S for ns in durations]
    return columns
