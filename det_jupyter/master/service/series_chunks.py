"""Chunks of measured numbers: which there are, and how they take the place of rows and others.

    rows (JSON)  ──►  as measured  ──►  10 s  ──►  1 min  ──►  10 min  ──►  1 h
                       a chunk of about 300 rows each

Once a chunk's rows are in a chunk of the next step, it points to that one. Both are kept for a
while: a picture of a long time reads the coarse one, a picture of a short time the fine ones. Of
each step the newest rows are kept, at least so many (LEVELS); those of the last step for ever.

Ages do not matter, only numbers of rows: a clock that jumps changes nothing.

What is in a chunk, series_packing.py knows; here each change is one small transaction.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from det_jupyter.master.service.database import transaction
from det_jupyter.master.service.series import Key

MEASURED = 0.0  # the step of rows as they were measured


@dataclass(frozen=True, slots=True)
class Level:
    """A step of time, how many of its rows are rolled up together, and how many are kept."""

    step_s: float
    num_rolled: int
    num_kept: int


LEVELS = (
    Level(MEASURED, 3_600, 3_600),  # an hour, at a sample a second
    Level(10.0, 2_160, 8_640),  # a day
    Level(60.0, 3_600, 10_080),  # a week
    Level(600.0, 2_160, 8_640),  # two months
)
LAST_STEP_S = 3600.0


@dataclass(frozen=True, slots=True)
class Chunk:
    """A packed table of one source, and which chunks it takes the place of."""

    key: Key
    step_s: float
    begins: float
    ends: float
    num: int
    blob: bytes
    children: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows, and the chunks that take their place."""

    ids: list[int]
    chunks: list[Chunk]


class SeriesChunks:
    """The table `series_chunks`."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def has_rows(self) -> bool:
        """Whether anything is there that is not packed."""
        return self._db.execute("SELECT 1 FROM series_rows LIMIT 1").fetchone() is not None

    def put(self, packed: Packed) -> None:
        """Put chunks in the place of their rows."""
        with transaction(self._db):
            marks = ", ".join("?" * len(packed.ids))
            found = self._db.execute(
                f"DELETE FROM series_rows WHERE id IN ({marks})", packed.ids
            ).rowcount
            if found == len(packed.ids):  # else the trial was deleted meanwhile
                for chunk in packed.chunks:
                    self._add(chunk)

    def _add(self, chunk: Chunk) -> int:
        cursor = self._db.execute(
            "INSERT INTO series_chunks "
            "(owner, kind, run, source, step_s, begins, ends, num, blob) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*chunk.key, chunk.step_s, chunk.begins, chunk.ends, chunk.num, chunk.blob),
        )
        return cursor.lastrowid or 0

    def put_rolled(self, chunk: Chunk) -> None:
        """Keep a rolled up chunk, and of the level below it no more than is to be kept."""
        level = max(
            (each for each in LEVELS if each.step_s < chunk.step_s), key=lambda e: e.step_s
        )
        marks = ", ".join("?" * len(chunk.children))
        which = "owner = ? AND kind = ? AND run = ? AND source = ? AND step_s = ?"
        with transaction(self._db):
            number = self._add(chunk)
            found = self._db.execute(
                f"UPDATE series_chunks SET rolled_into = ? WHERE id IN ({marks})",
                (number, *chunk.children),
            ).rowcount
            if found != len(chunk.children):  # the trial was deleted meanwhile
                self._db.execute("DELETE FROM series_chunks WHERE id = ?", (number,))
                return
            parents = self._db.execute(
                f"SELECT rolled_into, sum(num) FROM series_chunks WHERE {which} "
                "GROUP BY rolled_into ORDER BY max(id)",
                (*chunk.key, level.step_s),
            ).fetchall()
            spare = sum(num for _, num in parents) - level.num_kept
            for parent, num in parents:
                spare -= num
                if spare < 0 or parent is None:
                    break
                self._db.execute("DELETE FROM series_chunks WHERE rolled_into = ?", (parent,))
