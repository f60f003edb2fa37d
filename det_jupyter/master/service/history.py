"""The machine's history: the events that it handled, in order, and snapshots of its state."""

from __future__ import annotations

import sqlite3

_KEPT_SNAPSHOTS = 2


class History:
    """The tables `events`, `snapshots` and `numbers`."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

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

    def replace_event(self, seq: int, text: str) -> None:
        """Put another event in the place of one that cannot be handled any more."""
        self._db.execute("UPDATE events SET json = ? WHERE seq = ?", (text, seq))

    def drop_snapshot(self, seq: int) -> None:
        """Remove a state that cannot be read any more."""
        self._db.execute("DELETE FROM snapshots WHERE seq = ?", (seq,))
