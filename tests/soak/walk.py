"""Changes a value of each column of the database, and of each field of its JSON, one at a time.

    number       another one            text     one with a letter more
    bytes        one with a bit flipped  JSON    each field of the outermost object, likewise

A change is made to one row of the damaged experiment: the first one, and of states, which later
rows replace, the last one. The judge has to find it, unless TABLES or FIELDS says why it does not.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.soak.tables import JUDGED, TABLES

# Fields whose changes are not found, by table and kind of the row.
FIELDS = {
    "series_rows system": "measured, and stored nowhere else: no two runs have the same",
    "series_rows timings counters": "the soak counts nothing of its own",
    "timings at": "when the record was written, behind the one before",
}
# Tables without rows of an undisturbed experiment; other tests change them.
ELSEWHERE = ("series_cuts", "quarantine")
_STATES = ("experiment", "trial", "checkpoint")


@dataclass(frozen=True, slots=True)
class Change:
    """A value of one row, and what it becomes."""

    what: str
    table: str
    column: str
    row: int | str
    key: str  # the column that identifies the row
    before: Any
    after: Any

    def make(self, database: Path, *, back: bool = False) -> None:
        """Change the value, or change it back."""
        with closing(sqlite3.connect(database)) as db, db:
            row = self.after if self.column == self.key and back else self.row
            value = self.before if back else self.after
            statement = f"UPDATE {self.table} SET {self.column} = ? WHERE {self.key} IS ?"
            assert db.execute(statement, (value, row)).rowcount == 1, self


def changes(database: Path) -> Iterator[Change]:
    """Yield a change of each value that is judged."""
    with closing(sqlite3.connect(database)) as db:
        for table, columns in TABLES.items():
            for kind, which, order in _rows_of(db, table):
                yield from _changes_of(db, table, columns, kind, which, order)


def _rows_of(db: sqlite3.Connection, table: str) -> Iterator[tuple[str, str, str]]:
    """Yield kind, condition and order of the rows of which one is changed."""
    if table == "sqlite_sequence":
        yield "", "name = 'feed'", ""
        return
    if table not in ("feed", "series_rows"):
        yield "", "1", "DESC" if table in ("numbers", "snapshots", "verdicts") else ""
        return
    kinds = db.execute(f"SELECT DISTINCT kind FROM {table} WHERE kind != 'cluster'").fetchall()
    for (kind,) in kinds:
        yield kind, f"kind = '{kind}'", "DESC" if kind in _STATES else ""


def _changes_of(
    db: sqlite3.Connection,
    table: str,
    columns: dict[str, str],
    kind: str,
    which: str,
    order: str,
) -> Iterator[Change]:
    key = _key_of(db, table)
    query = f"SELECT {{}} FROM {table} WHERE {which} ORDER BY {key} {order} LIMIT 1"
    for column, judged in columns.items():
        row = db.execute(query.format(f"{key}, {column}")).fetchone()
        if judged != JUDGED or row is None or row[1] is None:
            continue
        where = " ".join(filter(None, (table, kind)))
        if column == "json" and table not in ("events", "snapshots", "series_runs"):
            for field, text in _changed_fields(row[1]):
                what = f"{where} {field}"
                if what not in FIELDS and where not in FIELDS:
                    yield Change(what, table, column, row[0], key, row[1], text)
        else:
            after = _other(row[1])
            yield Change(f"{where}: {column}", table, column, row[0], key, row[1], after)


def _key_of(db: sqlite3.Connection, table: str) -> str:
    names = [name for (name,) in db.execute("SELECT name FROM pragma_table_info(?)", (table,))]
    return next((name for name in ("seq", "id") if name in names and table != "sqlite_sequence"),
                names[0])  # fmt: skip


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
