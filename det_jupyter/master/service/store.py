"""What the master remembers: one SQLite file. Knows rows, nothing of what they mean.

    events      what the machine was told, in order; with snapshots, all there is to restore it
    snapshots   the machine's whole state after an event, now and then
    feed        what followers are told, in order (see below)
    logs        lines that ranks printed
    offsets     how many bytes of each rank's file are stored: written together with their rows
    progress    how far each trial is
    templates   parts of configurations, by name
    timings     how long the parts of batches took, by trial
    numbers     the newest experiment and trial after each event that made one
    quarantine  news, events and snapshots that could not be handled or read (quarantine.py)

A feed item that says no more than how far a trial has come is *passing*: the next one takes its
place. A day of training is then metrics, and not ten views a second; whoever follows from an old
number misses nothing that matters. Numbers are never reused.

What is *whole* in the feed says everything of an experiment or trial; other items of these kinds
leave out what is large and seldom changes, and followers keep what they know of it. After a
minute only the last item of a thing is kept, and its last whole one.

There is one connection and one writer, called synchronously from the event loop. A commit takes a
tenth of a millisecond to a millisecond (WAL, not synced at every commit), less than handing it to
another thread would save. What SIGKILL leaves is whole; after a power cut the last moments may be
missing, rows and offsets alike, and the agent's files of open runs still have them.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Literal

from det_jupyter.errors import DetError
from det_jupyter.master.service.log_rows import LOG_TABLES, LogRows
from det_jupyter.master.service.quarantine import Quarantine
from det_jupyter.master.service.rows import (
    as_item,
    as_template,
    as_text,
    as_timings,
    readable,
    trimmed,
)
from det_jupyter.master.service.schema import ADDED, ADDED_COLUMN, SCHEMA, SCHEMA_VERSION
from det_jupyter.system.ownership import open_own
from det_jupyter.wire import FeedItem, LogLine, TemplateView, TimingsView

_KEPT_SNAPSHOTS = 2
_ROWS_AT_ONCE = 500  # that are deleted: some 10 ms in which nobody else is served
_TRIALS_AT_ONCE = 500
_PAGES_AT_ONCE = 500  # that are given back, of 4 KiB: some 10 ms
_PAGES_KEPT = 1000  # though unused
_WAL_BYTES = 16 * 1024 * 1024  # what the log beside the database keeps after a large transaction
_REWRITTEN_BYTES = 200 * 1024 * 1024  # at the start, in about a second
# SQLite keeps text in a column of numbers if it is told to: in a damaged file such counts as 0.
_BYTES = "max(0, CAST(bytes AS INTEGER))"
_PROGRESS = "max(0, CAST(steps_completed AS INTEGER)), min(1.0, max(0.0, CAST(fraction AS REAL)))"
ItemKind = Literal["experiment", "trial", "checkpoint", "truncated", "cluster"]


class Store:
    """The master's database.

    Args:
        path: Its file; made if it is not there, for the user's eyes only.

    Raises:
        DetError: The file is another version's.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        os.close(open_own(path, os.O_RDWR | os.O_CREAT))
        self._db = sqlite3.connect(path, isolation_level=None)  # we say BEGIN ourselves
        self._db.text_factory = as_text
        self._logs = LogRows(self._db)
        try:
            self._prepare()
        except BaseException:
            self._db.close()
            raise
        self.quarantine = Quarantine(self._db)

    def _prepare(self) -> None:
        self._db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # if it is new, see `give_back`
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
        self._db.execute("PRAGMA synchronous = NORMAL")
        version: int = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            script = f"BEGIN; {SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
            self._db.executescript(script)
        elif version != SCHEMA_VERSION:
            raise DetError(
                f"{self.path}: got schema {version}, expected {SCHEMA_VERSION}; it belongs to "
                "another version of det_jupyter: use that one, or move the file away"
            )
        self._db.executescript(ADDED + LOG_TABLES)
        columns = self._db.execute("SELECT name FROM pragma_table_info('feed')")
        if ("is_whole",) not in columns.fetchall():
            self._db.execute(ADDED_COLUMN)
        self._learn_to_shrink()

    def _learn_to_shrink(self) -> None:
        """Rewrite a file of an older version, which cannot shrink, unless that would take long."""
        is_able = self._db.execute("PRAGMA auto_vacuum").fetchone()[0]
        if not is_able and self.path.stat().st_size < _REWRITTEN_BYTES:
            self._db.execute("PRAGMA auto_vacuum = INCREMENTAL")
            self._db.execute("VACUUM")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make all that is written inside happen as a whole, or not at all."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Make what is written inside, a part of a transaction, happen wholly or not at all."""
        self._db.execute("SAVEPOINT part")
        try:
            yield
        except BaseException:
            if self._db.in_transaction:  # a full disk may have ended all of it
                self._db.execute("ROLLBACK TO part")
                self._db.execute("RELEASE part")
            raise
        self._db.execute("RELEASE part")

    # the machine's history

    def add_event(self, seq: int, at: float, text: str) -> None:
        """Append an event; its number is the machine's count of events."""
        self._db.execute("INSERT INTO events VALUES (?, ?, ?)", (seq, at, text))

    def add_numbers(self, seq: int, last_experiment_id: int, last_trial_id: int) -> None:
        """Note how far the numbers of experiments and trials are after event `seq`."""
        self._db.execute(
            "INSERT OR REPLACE INTO numbers VALUES (?, ?, ?)",
            (seq, last_experiment_id, last_trial_id),
        )

    def numbers_after(self, seq: int) -> tuple[int, int]:
        """Return the numbers of the newest experiment and trial that there were after it."""
        row: tuple[int, int] | None = self._db.execute(
            "SELECT CAST(last_experiment_id AS INTEGER), CAST(last_trial_id AS INTEGER) "
            "FROM numbers WHERE seq <= ? "
            "ORDER BY seq DESC LIMIT 1",
            (seq,),
        ).fetchone()
        return row or (0, 0)

    def last_numbers(self) -> tuple[int, int]:
        """Return the numbers of the newest experiment and trial that there ever were."""
        query = (
            "SELECT max(CAST(last_experiment_id AS INTEGER)), max(CAST(last_trial_id AS INTEGER)) "
            "FROM numbers"
        )
        experiment_id, trial_id = self._db.execute(query).fetchone()
        return experiment_id or 0, trial_id or 0

    def add_snapshot(self, seq: int, text: str) -> None:
        """Keep the machine's state after event `seq`; old ones go."""
        self._db.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?)", (seq, text))
        self._db.execute(
            "DELETE FROM snapshots WHERE seq NOT IN "
            "(SELECT seq FROM snapshots ORDER BY seq DESC LIMIT ?)",
            (_KEPT_SNAPSHOTS,),
        )

    @property
    def snapshot_seq(self) -> int:
        """Number of the event that the newest snapshot was taken after; 0: there is none."""
        seq: int | None = self._db.execute("SELECT max(seq) FROM snapshots").fetchone()[0]
        return seq or 0

    def snapshots(self) -> list[tuple[int, str]]:
        """Return number and text of each state that is kept, the newest first."""
        return self._db.execute("SELECT seq, json FROM snapshots ORDER BY seq DESC").fetchall()

    def events_after(self, seq: int) -> list[tuple[int, float, str]]:
        """Return number, time and text of each event after that number, in order."""
        query = "SELECT seq, at, json FROM events WHERE seq > ? ORDER BY seq"
        return self._db.execute(query, (seq,)).fetchall()

    # the feed

    def add_item(
        self,
        kind: ItemKind,
        at: float,
        *,
        experiment_id: int,
        trial_id: int | None,
        text: str,
        is_passing: bool = False,
        is_whole: bool = True,
    ) -> None:
        """Append a feed item that is no metrics; it takes the place of passing ones before it.

        Args:
            kind: Its kind.
            at: When it happened.
            experiment_id: The experiment that it is about.
            trial_id: The trial that it is about, if any.
            text: Its data as JSON.
            is_passing: The next item of this kind about the same thing makes it superfluous.
            is_whole: It leaves nothing out.
        """
        self._db.execute(
            "DELETE FROM feed WHERE is_passing AND kind = ? AND experiment_id = ? "
            "AND trial_id IS ?",
            (kind, experiment_id, trial_id),
        )
        self._db.execute(
            "INSERT INTO feed (at, kind, experiment_id, trial_id, is_passing, is_whole, json) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (at, kind, experiment_id, trial_id, is_passing, is_whole, text),
        )

    def compact(self, experiment_id: int, before: float) -> Iterator[None]:
        """Delete states of an experiment and its trials that others have followed upon.

        Args:
            experiment_id: The experiment.
            before: Only such as are older: who follows closely is told of each.
        """
        states = "FROM feed WHERE experiment_id = ? AND kind IN ('experiment', 'trial')"
        last = f"SELECT max(seq) {states}"
        each = "GROUP BY kind, trial_id"
        yield from self._delete(
            "feed",
            "seq",
            "experiment_id = ? AND kind IN ('experiment', 'trial') AND at < ? "
            f"AND seq NOT IN ({last} {each} UNION ALL {last} AND is_whole {each})",
            [experiment_id, before, experiment_id, experiment_id],
        )

    def add_metrics(
        self, at: float, experiment_id: int, trial_id: int, steps: range, text: str
    ) -> None:
        """Append a record with metrics of these steps."""
        self._db.execute(
            "INSERT INTO feed (at, kind, experiment_id, trial_id, first_step, last_step, json) "
            "VALUES (?, 'metrics', ?, ?, ?, ?, ?)",
            (at, experiment_id, trial_id, steps[0], steps[-1], text),
        )

    def truncate_metrics(self, trial_id: int, steps_completed: int) -> None:
        """Forget a trial's metrics, and its timings, after that step."""
        self._truncate("feed", "seq", "kind = 'metrics' AND trial_id = ?", trial_id,
                       steps_completed)  # fmt: skip
        self._truncate("timings", "id", "trial_id = ?", trial_id, steps_completed)

    def _truncate(
        self, table: str, key: str, of_trial: str, trial_id: int, steps_completed: int
    ) -> None:
        where = (trial_id, steps_completed)
        self._db.execute(f"DELETE FROM {table} WHERE {of_trial} AND first_step > ?", where)
        straddling = self._db.execute(
            f"SELECT {key}, json FROM {table} WHERE {of_trial} AND last_step > ?", where
        )
        for number, text in straddling.fetchall():
            kept = next(readable([text], partial(trimmed, steps_completed)), None)
            if kept is None:
                self._db.execute(f"DELETE FROM {table} WHERE {key} = ?", (number,))
                continue
            self._db.execute(
                f"UPDATE {table} SET last_step = ?, json = ? WHERE {key} = ?",
                (steps_completed, kept, number),
            )

    @property
    def last_seq(self) -> int:
        """Number of the newest feed item."""
        seq: int | None = self._db.execute("SELECT max(seq) FROM feed").fetchone()[0]
        return seq or 0

    def feed(self, after: int, experiment_id: int | None, limit: int) -> list[FeedItem]:
        """Return feed items after that number, oldest first; those of number 0 are for all."""
        which, values = "seq > ?", [after]
        if experiment_id is not None:
            which, values = f"{which} AND experiment_id IN (?, 0)", [after, experiment_id]
        rows = self._db.execute(
            "SELECT seq, at, kind, experiment_id, trial_id, json FROM feed "
            f"WHERE {which} ORDER BY seq LIMIT ?",
            (*values, limit),
        ).fetchall()
        items = list(readable(rows, as_item))
        if rows and not items:
            return self.feed(rows[-1][0], experiment_id, limit)
        return items

    # timings

    def add_timings(self, trial_id: int, steps: range, text: str) -> None:
        """Append a record with timings of these steps."""
        self._db.execute(
            "INSERT INTO timings (trial_id, first_step, last_step, json) VALUES (?, ?, ?, ?)",
            (trial_id, steps[0], steps[-1], text),
        )

    def timings(self, trial_id: int, *, after: int, limit: int) -> list[TimingsView]:
        """Return a trial's timings after that id, oldest first."""
        rows = self._db.execute(
            "SELECT id, json FROM timings WHERE trial_id = ? AND id > ? ORDER BY id LIMIT ?",
            (trial_id, after, limit),
        )
        return list(readable(rows, as_timings))

    # progress

    def progress(self) -> dict[int, tuple[int, float]]:
        """Return of each trial its steps completed and its fraction."""
        rows = self._db.execute(f"SELECT trial_id, {_PROGRESS} FROM progress")
        return {trial_id: (steps, fraction) for trial_id, steps, fraction in rows}

    def progress_of(self, trial_id: int) -> tuple[int, float] | None:
        """Return a trial's steps completed and its fraction."""
        query = f"SELECT {_PROGRESS} FROM progress WHERE trial_id = ?"
        found: tuple[int, float] | None = self._db.execute(query, (trial_id,)).fetchone()
        return found

    def set_progress(self, trial_id: int, steps_completed: int, fraction: float) -> None:
        """Note how far a trial is."""
        self._db.execute(
            "INSERT OR REPLACE INTO progress VALUES (?, ?, ?)",
            (trial_id, steps_completed, fraction),
        )

    # what ranks printed

    def add_logs(self, at: float, *, trial_id: int, run: int, rank: int, lines: list[str]) -> None:
        """Append lines that a rank printed; of each rank the newest are kept (log_rows.py)."""
        self._logs.add(at, trial_id=trial_id, run=run, rank=rank, lines=lines)

    def logs(
        self, trial_id: int, *, after: int, rank: int | None, tail: int | None, limit: int
    ) -> list[LogLine]:
        """Return a trial's lines after that id, oldest first; with `tail` only the last ones."""
        return self._logs.read(trial_id, after=after, rank=rank, tail=tail, limit=limit)

    # offsets

    def offset(self, allocation_id: str, stream: str) -> int:
        """Return how many bytes of a rank's file are stored."""
        query = f"SELECT {_BYTES} FROM offsets WHERE allocation_id = ? AND stream = ?"
        row: tuple[int] | None = self._db.execute(query, (allocation_id, stream)).fetchone()
        return row[0] if row else 0

    def offsets_of(self, allocation_id: str) -> dict[str, int]:
        """Return how many bytes of each file of a run are stored."""
        query = f"SELECT stream, {_BYTES} FROM offsets WHERE allocation_id = ?"
        return dict(self._db.execute(query, (allocation_id,)).fetchall())

    def set_offsets(self, offsets: Mapping[tuple[str, str], int]) -> None:
        """Note how many bytes of these files are stored."""
        self._db.executemany(
            "INSERT OR REPLACE INTO offsets VALUES (?, ?, ?)",
            [(*key, num_bytes) for key, num_bytes in offsets.items()],
        )

    # deleting

    def delete_experiment(self, experiment_id: int, trial_ids: Sequence[int]) -> Iterator[None]:
        """Delete what is stored of an experiment: a part of it at each step, a transaction each.

        Its last feed item stays: it tells whoever comes late that the experiment was deleted.
        """
        last: int | None = self._db.execute(
            "SELECT max(seq) FROM feed WHERE experiment_id = ? AND kind = 'experiment'",
            (experiment_id,),
        ).fetchone()[0]
        yield from self._delete("feed", "seq", "experiment_id = ? AND seq <> ?",
                                [experiment_id, last or 0])  # fmt: skip
        for first in range(0, len(trial_ids), _TRIALS_AT_ONCE):
            some = list(trial_ids[first : first + _TRIALS_AT_ONCE])
            which = f"trial_id IN ({', '.join('?' * len(some))})"
            yield from self._delete("logs", "id", which, some)
            yield from self._delete("log_sizes", "trial_id", which, some)
            yield from self._delete("timings", "id", which, some)
            yield from self._delete("progress", "trial_id", which, some)
        runs = "allocation_id >= ? AND allocation_id < ?"  # "7." to "7/", which comes after "."
        with self.transaction():
            self._db.execute(
                f"DELETE FROM offsets WHERE {runs}", (f"{experiment_id}.", f"{experiment_id}/")
            )

    def give_back(self) -> bool:
        """Give some unused space back to the file system; return whether there is more of it.

        What is left is as much as the next rows will take anyway.
        """
        free: int = self._db.execute("PRAGMA freelist_count").fetchone()[0]
        if free > _PAGES_KEPT:
            some = min(_PAGES_AT_ONCE, free - _PAGES_KEPT)
            self._db.execute(f"PRAGMA incremental_vacuum({some})").fetchall()
        left: int = self._db.execute("PRAGMA freelist_count").fetchone()[0]
        return _PAGES_KEPT < left < free

    def _delete(self, table: str, key: str, which: str, values: Sequence[float]) -> Iterator[None]:
        some = f"SELECT {key} FROM {table} WHERE {which} LIMIT {_ROWS_AT_ONCE}"
        num = _ROWS_AT_ONCE
        while num == _ROWS_AT_ONCE:
            with self.transaction():
                num = self._db.execute(
                    f"DELETE FROM {table} WHERE {key} IN ({some})", values
                ).rowcount
            yield

    # templates

    def templates(self) -> list[TemplateView]:
        """Return all templates, sorted by name."""
        query = "SELECT name, created_at, updated_at, json FROM templates ORDER BY name"
        return list(readable(self._db.execute(query), as_template))

    def template(self, name: str) -> TemplateView | None:
        """Return a template; None if there is none of that name."""
        query = "SELECT name, created_at, updated_at, json FROM templates WHERE name = ?"
        return next(readable(self._db.execute(query, (name,)), as_template), None)

    def set_template(self, at: float, name: str, text: str) -> None:
        """Keep a template, its configuration as JSON; one of the same name goes."""
        self._db.execute(
            "INSERT INTO templates (name, created_at, updated_at, json) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET "
            "updated_at = excluded.updated_at, json = excluded.json",
            (name, at, at, text),
        )

    def delete_template(self, name: str) -> None:
        """Forget a template."""
        self._db.execute("DELETE FROM templates WHERE name = ?", (name,))
