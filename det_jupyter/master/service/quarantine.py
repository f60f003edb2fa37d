"""What could not be handled or read: kept apart, so that nothing waits for it any more.

It is for people to read (`sqlite3 det.sqlite3 "select * from quarantine"`): the experiment that
it belongs to says that it is here.
"""

from __future__ import annotations

import sqlite3
import traceback

_KEPT = 1000  # rows
_LONGEST = 65536  # characters of what is kept
_TROUBLE = {
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_PERM, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_READONLY,
}  # fmt: skip


def is_trouble(error: BaseException) -> bool:
    """Whether the computer failed (its disk is full, say), not what was to be handled or stored.

    Then nothing is set aside: it will be said again, and may be stored then.
    """
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in _TROUBLE
    if isinstance(error, (MemoryError, OSError)) or not isinstance(error, Exception):
        return True
    return error.__cause__ is not None and is_trouble(error.__cause__)


class Quarantine:
    """The table of that name."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def add(
        self,
        at: float,
        *,
        source: str,
        content: object,
        error: BaseException,
        experiment_id: int | None,
    ) -> None:
        """Keep what came from `source`: an event, a rank's file; of many the oldest go."""
        self._db.execute(
            "INSERT INTO quarantine (at, experiment_id, source, content, error) "
            "VALUES (?, ?, ?, ?, ?)",
            (
                at,
                experiment_id,
                _storable(source),
                _storable(content),
                _storable("".join(traceback.format_exception(error))),
            ),
        )
        self._db.execute(
            "DELETE FROM quarantine WHERE id <= (SELECT max(id) FROM quarantine) - ?", (_KEPT,)
        )

    def rows(self) -> list[tuple[int | None, str, str, str]]:
        """Return experiment, source, content and error of each row, oldest first."""
        query = "SELECT experiment_id, source, content, error FROM quarantine ORDER BY id"
        return self._db.execute(query).fetchall()


def _storable(content: object) -> str:
    """Return text for what a damaged row holds: SQLite gives what is there, bytes or a number."""
    return str(content)[:_LONGEST].encode("utf-8", "replace").decode()
