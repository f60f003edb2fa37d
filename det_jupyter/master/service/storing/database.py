"""The SQLite file: its tables and their version, how it is opened, and transactions.

A database of another version is refused, except the previous version, which is converted. Adding a
table needs no new version, because older programs do not use it; removing a column does.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from det_jupyter.contract.host.ownership import open_own
from det_jupyter.errors import DetError
from det_jupyter.master.service.storing.stored_rows import as_text

_ROWS_AT_ONCE = 500  # rows deleted in a transaction: some 10 ms in which nothing else is served
_WAL_BYTES = 16 * 1024 * 1024  # largest size that the write-ahead log keeps
# Size up to which a file is rewritten at the start, which takes a second.
_REWRITTEN_BYTES = 200 * 1024 * 1024

_SCHEMA_VERSION = 3
_VERSION_BEFORE = 2  # its feed has two additional columns, with defaults

SCHEMA = """
CREATE TABLE events (seq INTEGER PRIMARY KEY, at REAL NOT NULL, json TEXT NOT NULL);
CREATE TABLE snapshots (seq INTEGER PRIMARY KEY, json TEXT NOT NULL);
CREATE TABLE feed (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    kind TEXT NOT NULL,
    experiment_id INTEGER NOT NULL,
    trial_id INTEGER,
    first_step INTEGER,
    last_step INTEGER,
    json TEXT NOT NULL
);
CREATE INDEX feed_of_experiment ON feed (experiment_id, seq);
CREATE INDEX feed_metrics ON feed (trial_id, last_step) WHERE kind = 'metrics';
CREATE TABLE logs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    trial_id INTEGER NOT NULL,
    run INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    text TEXT NOT NULL
);
CREATE TABLE offsets (
    allocation_id TEXT NOT NULL,
    stream TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (allocation_id, stream)
) WITHOUT ROWID;
CREATE TABLE progress (
    trial_id INTEGER PRIMARY KEY,
    steps_completed INTEGER NOT NULL,
    fraction REAL NOT NULL
);
CREATE TABLE templates (
    name TEXT PRIMARY KEY,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    json TEXT NOT NULL
) WITHOUT ROWID;
"""

ADDED = """
CREATE TABLE IF NOT EXISTS log_sizes (
    trial_id INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    lines_cut INTEGER NOT NULL,
    PRIMARY KEY (trial_id, rank)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS timings (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    trial_id INTEGER NOT NULL,
    first_step INTEGER NOT NULL,
    last_step INTEGER NOT NULL,
    json TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS numbers (
    seq INTEGER PRIMARY KEY,
    last_experiment_id INTEGER NOT NULL,
    last_trial_id INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS quarantine (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    experiment_id INTEGER,
    source TEXT NOT NULL,
    content TEXT NOT NULL,
    error TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS series_rows (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL,
    kind TEXT NOT NULL,
    run INTEGER NOT NULL,
    source TEXT NOT NULL,
    at REAL NOT NULL,
    stored_at REAL NOT NULL,
    json TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS series_chunks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT NOT NULL,
    kind TEXT NOT NULL,
    run INTEGER NOT NULL,
    source TEXT NOT NULL,
    step_s REAL NOT NULL,
    begins REAL NOT NULL,
    ends REAL NOT NULL,
    num INTEGER NOT NULL,
    rolled_into INTEGER,
    blob BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS series_missing (
    owner TEXT NOT NULL,
    source TEXT NOT NULL,
    name TEXT NOT NULL,
    why TEXT NOT NULL,
    PRIMARY KEY (owner, source, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS series_runs (
    trial_id INTEGER NOT NULL,
    run INTEGER NOT NULL,
    began_at REAL NOT NULL,
    ended_at REAL,
    json TEXT NOT NULL,
    PRIMARY KEY (trial_id, run)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS series_cuts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    trial_id INTEGER NOT NULL,
    run INTEGER NOT NULL,
    steps_completed INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS series_rows_of ON series_rows (owner, kind, run, source, id, stored_at);
CREATE INDEX IF NOT EXISTS series_chunks_of
    ON series_chunks (owner, kind, run, source, step_s, id);
CREATE INDEX IF NOT EXISTS series_chunks_in ON series_chunks (rolled_into);
CREATE INDEX IF NOT EXISTS series_cuts_of ON series_cuts (trial_id);
CREATE TABLE IF NOT EXISTS alerts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    news TEXT NOT NULL,
    destination TEXT NOT NULL DEFAULT '',
    state TEXT NOT NULL DEFAULT 'raised',
    attempts INTEGER NOT NULL DEFAULT 0,
    next_at REAL NOT NULL DEFAULT 0,
    problem TEXT NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS alert_addresses (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    address TEXT NOT NULL UNIQUE
);
CREATE INDEX IF NOT EXISTS alerts_open ON alerts (next_at) WHERE state IN ('raised', 'waiting');
CREATE TABLE IF NOT EXISTS tracked (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    experiment_id INTEGER NOT NULL,
    tracker TEXT NOT NULL,
    environment TEXT,
    key TEXT NOT NULL,
    seq INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    next_at REAL NOT NULL DEFAULT 0,
    problem TEXT NOT NULL DEFAULT '',
    is_over INTEGER NOT NULL DEFAULT 0,
    UNIQUE (experiment_id, tracker)
);
CREATE TABLE IF NOT EXISTS tracked_runs (
    tracked_id INTEGER NOT NULL,
    trial_id INTEGER NOT NULL,
    json TEXT NOT NULL,
    PRIMARY KEY (tracked_id, trial_id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS facts (id INTEGER PRIMARY KEY, json TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS verdicts (trial_id INTEGER PRIMARY KEY, json TEXT NOT NULL);
DROP INDEX IF EXISTS logs_of_trial;
CREATE INDEX IF NOT EXISTS logs_found ON logs (trial_id, id, rank, level, at);
CREATE UNIQUE INDEX IF NOT EXISTS logs_open ON logs (trial_id, run, rank) WHERE is_open;
CREATE INDEX IF NOT EXISTS timings_of_trial ON timings (trial_id, id);
DROP INDEX IF EXISTS feed_passing;
DROP INDEX IF EXISTS feed_states;
CREATE INDEX IF NOT EXISTS feed_marks ON feed (experiment_id, trial_id, kind)
    WHERE kind NOT IN ('metrics', 'truncated');
"""

_ADDED_COLUMNS = (
    ("logs", "level", "INTEGER NOT NULL DEFAULT 0"),
    ("logs", "is_open", "INTEGER NOT NULL DEFAULT 0"),
    ("logs", "agent", "TEXT NOT NULL DEFAULT ''"),
)


def open_database(path: Path) -> sqlite3.Connection:
    """Return a connection; creates the file, readable by its owner only, if it does not exist.

    Raises:
        DetError: The file belongs to another version.
    """
    os.close(open_own(path, os.O_RDWR | os.O_CREAT))
    db = sqlite3.connect(path, isolation_level=None)  # transactions begin with an explicit BEGIN
    db.text_factory = as_text
    try:
        _prepare(db, path)
    except BaseException:  # an interrupt too: the file is closed
        db.close()
        raise
    return db


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only for new files, see `Store.give_back`
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
    db.execute("PRAGMA synchronous = NORMAL")
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    if version == 0:
        db.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {_SCHEMA_VERSION}; COMMIT;")
    elif version not in (_VERSION_BEFORE, _SCHEMA_VERSION):
        raise DetError(
            f"{path}: got schema {version}, expected {_SCHEMA_VERSION}; it belongs to "
            "another version of det_jupyter: use that one, or move the file away"
        )
    for table, column, kind in _ADDED_COLUMNS:
        if not db.execute(
            "SELECT 1 FROM pragma_table_info(?) WHERE name = ?", (table, column)
        ).fetchone():
            db.execute(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")
    db.executescript(ADDED)
    if version == _VERSION_BEFORE:
        db.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
    _enable_shrinking(db, path)


def _enable_shrinking(db: sqlite3.Connection, path: Path) -> None:
    """Rewrite a file of an older version, which cannot shrink, unless that would take long."""
    can_shrink = db.execute("PRAGMA auto_vacuum").fetchone()[0]
    if not can_shrink and path.stat().st_size < _REWRITTEN_BYTES:
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute("VACUUM")


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Return a connection that cannot write; usable in any thread, but not concurrently."""
    db = sqlite3.connect(
        f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
    )
    db.text_factory = as_text
    return db


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Commit the writes of the block, or roll all of them back if it raises."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:  # an interrupt too: half of it must not be stored
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


@contextmanager
def savepoint(db: sqlite3.Connection) -> Iterator[None]:
    """Within a transaction, roll back the writes of the block if it raises."""
    db.execute("SAVEPOINT part")
    try:
        yield
    except BaseException:  # an interrupt too: half of it must not be stored
        if db.in_transaction:  # a full disk may have ended the transaction
            db.execute("ROLLBACK TO part")
            db.execute("RELEASE part")
        raise
    db.execute("RELEASE part")


def delete_in_parts(
    db: sqlite3.Connection, table: str, key: str, which: str, values: Sequence[float | str]
) -> Iterator[None]:
    """Delete the matching rows: some in each step, each step in its own transaction."""
    some = f"SELECT {key} FROM {table} WHERE {which} LIMIT {_ROWS_AT_ONCE}"
    num = _ROWS_AT_ONCE
    while num == _ROWS_AT_ONCE:
        with transaction(db):
            num = db.execute(f"DELETE FROM {table} WHERE {key} IN ({some})", values).rowcount
        yield
