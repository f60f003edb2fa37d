"""Stores reports, events and snapshots that could not be handled or read.

They are stored for inspection (`sqlite3 det.sqlite3 "select * from quarantine"`); the message of
the experiment refers to them.
"""

from __future__ import annotations

import sqlite3
import traceback

_KEPT = 1000  # number of rows that are kept
_LONGEST = 65536  # characters of a column
_SYSTEM_ERRORS = {
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_PERM, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_READONLY,
}  # fmt: skip


def is_system_error(error: BaseException) -> bool:
    """Return whether the computer failed (a full disk, for example), and not the content.

    If so, nothing is stored in the quarantine: the report is sent again, and may succeed.
    """
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in _SYSTEM_ERRORS
    if isinstance(error, (MemoryError, OSError)) or not isinstance(error, Exception):
        return True
    return error.__cause__ is not None and is_system_error(error.__cause__)


class Quarantine:
    """The table `quarantine` of the database: content that could not be handled, and errors."""

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
        """Store content that could not be handled; only the newest rows are kept.

        Args:
            source: The kind of content, such as an event or a rank's file.
        """
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
    """Convert the content of a damaged row, which may be bytes or a number, to text."""
    return str(content)[:_LONGEST].encode("utf-8", "replace").decode()
