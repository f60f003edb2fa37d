"""Changes a value of each column, of each JSON field, and of each answer, one at a time.

    number       another number         text     with an additional letter
    bytes        with one bit flipped   JSON     each field of the outermost object, likewise

A change is made to one row of the damaged experiment: the first one, or the last one if later rows
replace earlier ones. The judge has to find it, unless TABLES or FIELDS has a reason why it does
not.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.soak.tables import JUDGED, TABLES

# By table and kind of row: columns and fields whose changes are not found, with the reason.
FIELDS = {
    "series_rows system": "measured, and stored nowhere else: no two runs have the same",
    "series_rows timings: id": "only the order of these rows counts",
    "series_rows timings counters": "the soak counts nothing of its own",
    "series_rows timings samples": "a count that is compared with nothing",
    "timings at": "when the record was written, behind the one before",
    "timings kind": "there is one kind",
}
# Tables without rows of an undisturbed experiment; other tests damage them.
ELSEWHERE = ("series_cuts", "quarantine")


@dataclass(frozen=True, slots=True)
class Change:
    """A value of one row, and its replacement."""

    what: str
    table: str
    column: str
    row: Mapping[str, Any]  # the columns that identify it
    before: Any
    after: Any

    def make(self, database: Path, *, back: bool = False) -> None:
        """Change the value, or change it back."""
        row = {**self.row, self.column: self.after} if back else {**self.row}
        value = self.before if back else self.after
        where = " AND ".join(f"{name} IS ?" for name in row)
        statement = f"UPDATE {self.table} SET {self.column} = ? WHERE {where}"
        with closing(sqlite3.connect(database)) as db, db:
            assert db.execute(statement, (value, *row.values())).rowcount == 1, self


def changes(database: Path) -> Iterator[Change]:
    """Yield a change of each judged value."""
    with closing(sqlite3.connect(database)) as db:
        for table, columns in TABLES.items():
            for kind, which, order in _rows_of(db, table):
                if f"{table} {kind}" not in FIELDS:
                    found = _changes_of(db, table, columns, kind, which, order)
                    yield from (each for each in found if each.what not in FIELDS)


def _rows_of(db: sqlite3.Connection, table: str) -> Iterator[tuple[str, str, str]]:
    """Yield kind, condition and order of the rows, of each of which one is changed."""
    if table == "sqlite_sequence":
        yield "", "name = 'feed'", ""
        return
    if table not in ("feed", "series_rows"):
        yield "", "1", "DESC" if table in ("numbers", "snapshots", "verdicts") else ""
        return
    kinds = db.execute(f"SELECT DISTINCT kind FROM {table} WHERE kind != 'cluster'").fetchall()
    for (kind,) in kinds:
        yield kind, f"kind = '{kind}'", ""


def _changes_of(
    db: sqlite3.Connection,
    table: str,
    columns: dict[str, str],
    kind: str,
    which: str,
    order: str,
) -> Iterator[Change]:
    keys = _keys_of(db, table)
    query = f"SELECT * FROM {table} WHERE {which} ORDER BY {keys[0]} {order} LIMIT 1"
    found = db.execute(query)
    names = [each[0] for each in found.description]
    row = dict(zip(names, found.fetchone() or (), strict=False))
    key, where = {name: row.get(name) for name in keys}, " ".join(filter(None, (table, kind)))
    for column, judged in columns.items():
        if judged != JUDGED or (before := row.get(column)) is None:
            continue
        if column == "json" and table not in ("events", "snapshots", "series_runs"):
            for field, text in _changed_fields(before):
                yield Change(f"{where} {field}", table, column, key, before, text)
        else:
            yield Change(f"{where}: {column}", table, column, key, before, _other(before))


def _keys_of(db: sqlite3.Connection, table: str) -> list[str]:
    """Return the columns of the primary key."""
    query = "SELECT name FROM pragma_table_info(?) WHERE pk ORDER BY pk"
    return [name for (name,) in db.execute(query, (table,))] or ["name"]


def changed_shown(file: Path, experiment_id: int) -> Iterator[tuple[str, str]]:
    """Yield each field of the stored answers about an experiment, and the changed answers.

    The fields are those of the experiment, its first trial and its last checkpoint.
    """
    for kind in ("experiment", "trial", "checkpoint"):
        for field in _part(json.loads(file.read_text()), experiment_id, kind):
            found = json.loads(file.read_text())
            part = _part(found, experiment_id, kind)
            part[field] = _other(part[field])
            if field != "trials":  # the fields of trials follow
                yield f"{kind} {field}", json.dumps(found)


def _part(found: list[dict[str, Any]], experiment_id: int, kind: str) -> dict[str, Any]:
    shown = next(each for each in found if each["experiment"]["id"] == experiment_id)
    parts: dict[str, dict[str, Any]] = {
        "experiment": shown["experiment"],
        "trial": shown["experiment"]["trials"][0],
        "checkpoint": shown["checkpoints"][-1],
    }
    return parts[kind]


def _changed_fields(text: str) -> Iterator[tuple[str, str]]:
    item = json.loads(text)
    for field, value in item.items():
        yield field, json.dumps(item | {field: _other(value)})


def _other(value: Any) -> Any:
    """Return another value of the same type."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1_000_000
        case str():
            return f"{value}x"
        case bytes():
            return value[:-1] + bytes([value[-1] ^ 1])
        case list():
            return [*value, 1]
        case dict() if value:
            return {key: _other(each) for key, each in value.items()}
        case dict():
            return {"x": 1}
        case _:
            return 1
