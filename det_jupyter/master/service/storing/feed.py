"""The feed: numbered items about experiments, in order.

    metrics, truncated       metrics of trials, and the steps after which they were deleted
    experiment, config,      marks of changed objects. A new mark of an object replaces the old
    trial, checkpoint,       one, so there is one per object, with the number of the last change
    cluster

A program that has read up to a number finds new items after it; the reader and the senders of
trackers do so. Numbers are never reused.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal

from det_jupyter.contract.messages import FeedItem
from det_jupyter.master.service.storing.stored_rows import as_change_of_curves, as_item, readable

# Time, experiment, trial, first and last step, and the record as JSON.
MetricsRow = tuple[float, int, int, int, int, str]
Mark = Literal["experiment", "config", "trial", "checkpoint", "cluster"]


class Feed:
    """The table `feed`."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def mark(
        self, kind: Mark, at: float, experiment_id: int = 0, trial_id: int | None = None
    ) -> None:
        """Record that something has changed; `experiment_id` 0: it belongs to no experiment."""
        self._db.execute(
            "DELETE FROM feed WHERE kind NOT IN ('metrics', 'truncated') "
            "AND experiment_id = ? AND trial_id IS ? AND kind = ?",
            (experiment_id, trial_id, kind),
        )
        self._add(kind, at, experiment_id, trial_id, "{}")

    def add_truncation(
        self, at: float, experiment_id: int, trial_id: int, steps_completed: int
    ) -> None:
        """Record after which step the metrics of a trial were deleted."""
        text = f'{{"steps_completed":{steps_completed}}}'
        self._add("truncated", at, experiment_id, trial_id, text)

    def _add(
        self, kind: str, at: float, experiment_id: int, trial_id: int | None, text: str
    ) -> None:
        self._db.execute(
            "INSERT INTO feed (at, kind, experiment_id, trial_id, json) VALUES (?, ?, ?, ?, ?)",
            (at, kind, experiment_id, trial_id, text),
        )

    def add_metrics(self, rows: Sequence[MetricsRow]) -> None:
        self._db.executemany(
            "INSERT INTO feed (at, kind, experiment_id, trial_id, first_step, last_step, json) "
            "VALUES (?, 'metrics', ?, ?, ?, ?, ?)",
            rows,
        )

    @property
    def last_seq(self) -> int:
        """Number of the newest feed item."""
        seq: int | None = self._db.execute("SELECT max(seq) FROM feed").fetchone()[0]
        return seq or 0

    def after(self, number: int, experiment_id: int, limit: int) -> list[FeedItem]:
        """Return the items of an experiment after this number, oldest first."""
        rows = self._db.execute(
            "SELECT seq, at, kind, experiment_id, trial_id, json FROM feed "
            "WHERE experiment_id = ? AND seq > ? ORDER BY seq LIMIT ?",
            (experiment_id, number, limit),
        ).fetchall()
        items = list(readable(rows, as_item))
        if rows and not items:
            return self.after(rows[-1][0], experiment_id, limit)
        return items

    def news_after(self, number: int, limit: int) -> list[FeedItem]:
        """Return the items of all experiments after this number, oldest first, without data."""
        rows = self._db.execute(
            "SELECT seq, at, kind, experiment_id, trial_id, '{}' FROM feed "
            "WHERE seq > ? ORDER BY seq LIMIT ?",
            (number, limit),
        )
        return list(readable(rows, as_item))

    def metrics_after(
        self, number: int, experiment_id: int
    ) -> list[tuple[int, int, dict[str, Any]]]:
        """Return number, trial and record of the items that change an experiment's curves.

        They are those after this number, oldest first; see `as_change_of_curves`.
        """
        rows = self._db.execute(
            "SELECT seq, trial_id, kind, json FROM feed "
            "WHERE experiment_id = ? AND seq > ? AND kind IN ('metrics', 'truncated') "
            "ORDER BY seq",
            (experiment_id, number),
        )
        return list(readable(rows, as_change_of_curves))


class CommitSignal:
    """Wakes tasks that wait for the next commit, and calls functions at each commit."""

    def __init__(self) -> None:
        self._committed = asyncio.Event()
        self._calls: list[Callable[[], None]] = []
        self.is_closed = False

    def call(self, function: Callable[[], None]) -> None:
        """Call a function at each commit from now on. It must be quick, and not raise."""
        self._calls.append(function)

    def notify(self) -> None:
        self._committed.set()
        self._committed = asyncio.Event()
        for function in self._calls:
            function()

    def close(self) -> None:
        """Wake all waiting tasks for the last time, which ends the streams."""
        self.is_closed = True
        self.notify()

    async def wait(self, timeout_s: float) -> bool:
        """Wait for the next commit; return False if there was none in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                return await self._committed.wait()
        return False
