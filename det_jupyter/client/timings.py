"""Turns stored timings into columns over all batches, in seconds. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from det_jupyter.wire import TimingsView

_NS_PER_S = 1e9
_WHOLE = "batch"  # from one batch to the next


def to_columns(records: Iterable[TimingsView]) -> dict[str, list[float | None]]:
    """Return lists of one length, by name; empty if there are no timings.

    Args:
        records: Of one trial, in the order in which they were written.
    """
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
