"""The master's storage: one SQLite file. It stores rows and does not interpret them.

    alerts      messages to the addresses of alerts (stored_alerts.py)
    history     events in order, and snapshots of the state, from which the machine is restored
    facts       data of views that are not in the state (facts.py)
    feed        numbered items: metrics, and marks of what has changed (feed.py)
    logs        lines that ranks printed (stored_logs.py)
    quarantine  reports, events and snapshots that could not be handled or read (quarantine.py)
    offsets     how many bytes of each rank's file are stored: written together with their rows
    progress    the progress of each trial
    templates   parts of configurations, by name
    timings     durations of the parts of batches, by trial
    series      measured numbers over time (stored_series.py)
    trackers    how far experiments are sent to trackers (tracked.py)
    verdicts    the last verdict on each trial: what limits its speed

There is one connection and one writer, called synchronously from the event loop. A commit takes
0.1 to 1 ms (WAL, not synced at every commit), which is too short to gain from another thread.
After SIGKILL the file is consistent; after a power cut the last moments may be missing, rows and
offsets alike, and the agent's files of open runs still contain them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from difflib import get_close_matches
from pathlib import Path

from det_jupyter.contract.messages import TemplateView, TimingsView, Verdict
from det_jupyter.contract.values.text import listed
from det_jupyter.errors import NotFound
from det_jupyter.master.service.storing.addresses import Addresses
from det_jupyter.master.service.storing.database import (
    delete_in_parts,
    open_database,
    open_for_reading,
    savepoint,
    transaction,
)
from det_jupyter.master.service.storing.facts import StoredFacts
from det_jupyter.master.service.storing.feed import Feed
from det_jupyter.master.service.storing.quarantine import Quarantine
from det_jupyter.master.service.storing.stored_alerts import StoredAlerts
from det_jupyter.master.service.storing.stored_logs import Logs
from det_jupyter.master.service.storing.stored_rows import (
    as_template,
    as_timings,
    readable,
    truncate_rows,
)
from det_jupyter.master.service.storing.stored_series import StoredSeries
from det_jupyter.master.service.storing.tracked import TrackedExperiments

_KEPT_SNAPSHOTS = 2
_MOST_NAMED = 10  # most templates in an error message
_TRIALS_AT_ONCE = 500
_PAGES_AT_ONCE = 500  # pages of 4 KiB given back in one call, which takes some 10 ms
_PAGES_KEPT = 1000  # unused pages that stay in the file
# In a damaged file a column of numbers may contain text, which counts as 0.
_BYTES = "max(0, CAST(bytes AS INTEGER))"
_PROGRESS = "max(0, CAST(steps_completed AS INTEGER)), min(1.0, max(0.0, CAST(fraction AS REAL)))"


class Store:
    """The master's database. The file is created, readable by its owner only, if it is missing.

    Args:
        path: The file.
        is_read_only: Only read an existing file of this version, as the reader does; then the
            object may be used in any thread, but not concurrently.

    Raises:
        DetError: The file belongs to another version.
    """

    def __init__(self, path: Path, *, is_read_only: bool = False) -> None:
        self.path = path
        self._db = open_for_reading(path) if is_read_only else open_database(path)
        self.alerts = StoredAlerts(self._db)
        self.addresses = Addresses(self._db, path.parent)
        self.facts = StoredFacts(self._db)
        self.tracked = TrackedExperiments(self._db, self.addresses)
        self.history = History(self._db)
        self.feed = Feed(self._db)
        self.logs = Logs(self._db)
        self.quarantine = Quarantine(self._db)
        self.series = StoredSeries(self._db)

    def close(self) -> None:
        self._db.close()

    def transaction(self) -> AbstractContextManager[None]:
        """Commit the writes of the block, or roll all of them back if it raises."""
        return transaction(self._db)

    def savepoint(self) -> AbstractContextManager[None]:
        """Within a transaction, roll back the writes of the block if it raises."""
        return savepoint(self._db)

    # timings, and metrics in the feed

    def truncate_metrics(self, trial_id: int, steps_completed: int) -> None:
        """Delete a trial's metrics and timings after this step."""
        for table, key, which in (("feed", "seq", "kind = 'metrics'"), ("timings", "id", "1")):
            truncate_rows(
                self._db, table, key, which=which, trial_id=trial_id, after_step=steps_completed
            )

    def add_timings(self, trial_id: int, steps: range, text: str) -> None:
        self._db.execute(
            "INSERT INTO timings (trial_id, first_step, last_step, json) VALUES (?, ?, ?, ?)",
            (trial_id, steps[0], steps[-1], text),
        )

    def timings(self, trial_id: int, *, after: int, limit: int) -> list[TimingsView]:
        """Return a trial's timings with greater ids than `after`, oldest first."""
        rows = self._db.execute(
            "SELECT id, json FROM timings WHERE trial_id = ? AND id > ? ORDER BY id LIMIT ?",
            (trial_id, after, limit),
        )
        return list(readable(rows, as_timings))

    # progress

    def progress(self) -> dict[int, tuple[int, float]]:
        """Return `{trial_id: (steps_completed, fraction of the trial's length)}`."""
        rows = self._db.execute(f"SELECT trial_id, {_PROGRESS} FROM progress")
        return {trial_id: (steps, fraction) for trial_id, steps, fraction in rows}

    def progress_of(self, trial_id: int) -> tuple[int, float] | None:
        """Return a trial's steps completed and the fraction of its length; None if not stored."""
        query = f"SELECT {_PROGRESS} FROM progress WHERE trial_id = ?"
        found: tuple[int, float] | None = self._db.execute(query, (trial_id,)).fetchone()
        return found

    def set_progress(self, trial_id: int, steps_completed: int, fraction: float) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO progress VALUES (?, ?, ?)",
            (trial_id, steps_completed, fraction),
        )

    # verdicts

    def verdict(self, trial_id: int) -> Verdict | None:
        """Return the last verdict on a trial."""
        rows = self._db.execute("SELECT json FROM verdicts WHERE trial_id = ?", (trial_id,))
        return next(readable(rows, lambda row: Verdict.model_validate_json(row[0])), None)

    def set_verdict(self, trial_id: int, verdict: Verdict) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO verdicts VALUES (?, ?)", (trial_id, verdict.model_dump_json())
        )

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
        """Store how many bytes of each file are stored, by allocation and stream."""
        self._db.executemany(
            "INSERT OR REPLACE INTO offsets VALUES (?, ?, ?)",
            [(*key, num_bytes) for key, num_bytes in offsets.items()],
        )

    # deleting

    def delete_experiment(self, experiment_id: int, trial_ids: Sequence[int]) -> Iterator[None]:
        """Delete the rows of an experiment: some in each step, each in its own transaction."""
        yield from delete_in_parts(self._db, "feed", "seq", "experiment_id = ?", [experiment_id])
        for first in range(0, len(trial_ids), _TRIALS_AT_ONCE):
            some = list(trial_ids[first : first + _TRIALS_AT_ONCE])
            which = f"trial_id IN ({', '.join('?' * len(some))})"
            for table in ("logs", "timings"):
                yield from delete_in_parts(self._db, table, "id", which, some)
            for table in ("log_sizes", "progress", "verdicts"):
                yield from delete_in_parts(self._db, table, "trial_id", which, some)
            yield from self.series.delete(some)
        self.tracked.delete(experiment_id)
        runs = "allocation_id >= ? AND allocation_id < ?"  # "7." to "7/", which comes after "."
        with self.transaction():
            self._db.execute(
                f"DELETE FROM offsets WHERE {runs}", (f"{experiment_id}.", f"{experiment_id}/")
            )

    def give_back(self) -> bool:
        """Give some unused pages back to the file system; return whether there are more.

        Some unused pages are kept for the next rows.
        """
        free: int = self._db.execute("PRAGMA freelist_count").fetchone()[0]
        if free > _PAGES_KEPT:
            some = min(_PAGES_AT_ONCE, free - _PAGES_KEPT)
            self._db.execute(f"PRAGMA incremental_vacuum({some})").fetchall()
        left: int = self._db.execute("PRAGMA freelist_count").fetchone()[0]
        return _PAGES_KEPT < left < free

    # templates

    def templates(self) -> list[TemplateView]:
        """Return all templates, sorted by name."""
        query = "SELECT name, created_at, updated_at, json FROM templates ORDER BY name"
        return list(readable(self._db.execute(query), as_template))

    def template(self, name: str) -> TemplateView:
        """Return a template.

        Raises:
            NotFound: There is no template of this name; the message lists the others.
        """
        query = "SELECT name, created_at, updated_at, json FROM templates WHERE name = ?"
        for found in readable(self._db.execute(query, (name,)), as_template):
            return found
        raise NotFound(_unknown_template(name, [each.name for each in self.templates()]))

    def set_template(self, at: float, name: str, text: str) -> None:
        """Store a template (its configuration as JSON), or replace the one of this name."""
        self._db.execute(
            "INSERT INTO templates (name, created_at, updated_at, json) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET "
            "updated_at = excluded.updated_at, json = excluded.json",
            (name, at, at, text),
        )

    def delete_template(self, name: str) -> None:
        self._db.execute("DELETE FROM templates WHERE name = ?", (name,))


class History:
    """The tables `events`, `snapshots` and `numbers`, from which the machine is restored."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def add_event(self, seq: int, at: float, text: str) -> None:
        """Append an event; `seq` is the machine's count of events."""
        self._db.execute("INSERT INTO events VALUES (?, ?, ?)", (seq, at, text))

    def add_numbers(self, seq: int, last_experiment_id: int, last_trial_id: int) -> None:
        """Store the last ids of experiments and trials after event `seq`."""
        self._db.execute(
            "INSERT OR REPLACE INTO numbers VALUES (?, ?, ?)",
            (seq, last_experiment_id, last_trial_id),
        )

    def numbers_after(self, seq: int) -> tuple[int, int]:
        """Return the last ids of experiments and trials after event `seq`."""
        row: tuple[int, int] | None = self._db.execute(
            "SELECT CAST(last_experiment_id AS INTEGER), CAST(last_trial_id AS INTEGER) "
            "FROM numbers WHERE seq <= ? "
            "ORDER BY seq DESC LIMIT 1",
            (seq,),
        ).fetchone()
        return row or (0, 0)

    def last_numbers(self) -> tuple[int, int]:
        """Return the greatest ids that were ever given to an experiment and a trial."""
        query = (
            "SELECT max(CAST(last_experiment_id AS INTEGER)), max(CAST(last_trial_id AS INTEGER)) "
            "FROM numbers"
        )
        experiment_id, trial_id = self._db.execute(query).fetchone()
        return experiment_id or 0, trial_id or 0

    def add_snapshot(self, seq: int, text: str) -> None:
        """Store the machine's state (JSON) after event `seq`; only the newest two are kept."""
        self._db.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?)", (seq, text))
        self._db.execute(
            "DELETE FROM snapshots WHERE seq NOT IN "
            "(SELECT seq FROM snapshots ORDER BY seq DESC LIMIT ?)",
            (_KEPT_SNAPSHOTS,),
        )

    @property
    def snapshot_seq(self) -> int:
        """Number of the event after which the newest snapshot was taken; 0 if there is none."""
        seq: int | None = self._db.execute("SELECT max(seq) FROM snapshots").fetchone()[0]
        return seq or 0

    def snapshots(self) -> list[tuple[int, str]]:
        """Return number and JSON of each snapshot, newest first."""
        return self._db.execute("SELECT seq, json FROM snapshots ORDER BY seq DESC").fetchall()

    def events_after(self, seq: int, *, limit: int = -1) -> list[tuple[int, float, str]]:
        """Return number, time and JSON of each event after `seq`, in order; `limit` -1: of all."""
        query = "SELECT seq, at, json FROM events WHERE seq > ? ORDER BY seq LIMIT ?"
        return self._db.execute(query, (seq, limit)).fetchall()

    def replace_event(self, seq: int, text: str) -> None:
        """Replace an event that cannot be handled any more."""
        self._db.execute("UPDATE events SET json = ? WHERE seq = ?", (text, seq))

    def drop_snapshot(self, seq: int) -> None:
        """Delete a snapshot that cannot be read any more."""
        self._db.execute("DELETE FROM snapshots WHERE seq = ?", (seq,))


def _unknown_template(name: str, names: list[str]) -> str:
    """Return the error message about a template that does not exist; `names` are sorted."""
    nearest = get_close_matches(name, names, n=1)
    if nearest:
        remedy = f"did you mean {nearest[0]}?"
    elif names:
        remedy = f"there are {listed(names, most=_MOST_NAMED)}"
    else:
        remedy = "there is none yet"
    return f"there is no template {name!r}; {remedy}"
