"""Packs rows of measured numbers into chunks, and rolls chunks up (stored_series.py).

Runs in another thread, with connections of its own. Sources that have had no new rows for some
minutes are packed, however few rows they have.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from det_jupyter.master.service.storing.stored_rows import read_only, readable
from det_jupyter.master.service.storing.stored_series import (
    LAST_STEP_S,
    LEVELS,
    MEASURED,
    OF_KEY,
    Key,
    PackedRows,
    SeriesChunk,
)
from det_jupyter.master.views.series_tables import (
    Table,
    from_bytes,
    joined,
    of_samples,
    of_times,
    rolled_up,
    to_bytes,
)

_NUM_PACKED = 300  # rows that are packed together
# A source counts as ended after this time without new rows; longer if its rows are farther apart.
_SILENT_S = 300.0
_INTERVALS = 5
_ALONE_S = 4 * 3600.0  # the same for a source with a single row
_MAX_PACKED = 2000  # most rows packed in one call


def find_due(path: Path, now: float) -> list[Key]:
    """Return the keys whose rows are to be packed."""
    with read_only(path) as db:
        rows = db.execute(
            "SELECT owner, kind, run, source FROM series_rows GROUP BY owner, kind, run, source "
            "HAVING count(*) >= ? OR min(stored_at) > ? OR max(stored_at) < ? - "
            "CASE count(*) WHEN 1 THEN ? "
            "ELSE max(?, ? * (max(stored_at) - min(stored_at)) / (count(*) - 1)) END",
            (_NUM_PACKED, now + _SILENT_S, now, _ALONE_S, _SILENT_S, _INTERVALS),
        )
        return [Key(*row) for row in rows]


def pack(path: Path, key: Key) -> PackedRows:
    """Return the chunks for the oldest rows of a key; rows that cannot be read are left out."""
    with read_only(path) as db:
        rows = db.execute(
            f"SELECT id, at, json FROM series_rows WHERE {OF_KEY} ORDER BY id LIMIT ?",
            (*key, _MAX_PACKED),
        ).fetchall()
    tables = tables_of(key, [(at, text) for _, at, text in rows])
    chunks = [
        _chunk(key._replace(source=source), table, MEASURED) for source, table in tables.items()
    ]
    return PackedRows([number for number, _, _ in rows], chunks)


def _chunk(key: Key, table: Table, step_s: float, children: tuple[int, ...] = ()) -> SeriesChunk:
    return SeriesChunk(
        key=key,
        step_s=step_s,
        begins=float(table.at.min()),
        ends=float(table.at.max()),
        num=len(table.at),
        blob=to_bytes(table, is_measured=step_s == MEASURED),
        children=children,
    )


def tables_of(key: Key, rows: list[tuple[float, str]]) -> dict[str, Table]:
    """Return the tables of rows that are not packed (time and JSON), by source."""
    read = list(readable(rows, lambda row: (row[0], json.loads(row[1]))))
    if key.kind == "timings":
        return {key.source: of_times([record for _, record in read])} if read else {}
    samples = defaultdict(list)
    for at, values in read:
        for source, own in values.items():
            samples[source].append((at, own))
    return {source: of_samples(own) for source, own in samples.items()}


def roll_up(path: Path, keys: Sequence[Key]) -> list[SeriesChunk]:
    """Return coarser chunks of these sources: one for each level with enough rows to roll up."""
    with read_only(path) as db:
        return [chunk for key in keys for chunk in _rolled_up(db, key)]


def _rolled_up(db: sqlite3.Connection, key: Key) -> Iterator[SeriesChunk]:
    next_steps_s = [*(level.step_s for level in LEVELS[1:]), LAST_STEP_S]
    for level, step_s in zip(LEVELS, next_steps_s, strict=True):
        which = f"{OF_KEY} AND step_s = ? AND rolled_into IS NULL"
        values = (*key, level.step_s)
        num = db.execute(f"SELECT sum(num) FROM series_chunks WHERE {which}", values).fetchone()[0]
        if (num or 0) >= level.num_rolled:
            query = f"SELECT id, blob FROM series_chunks WHERE {which} ORDER BY id"
            ids, blobs = zip(*db.execute(query, values), strict=True)
            table = joined(readable(blobs, from_bytes))
            if len(table.at):
                yield _chunk(key, rolled_up(table, step_s), step_s, ids)
