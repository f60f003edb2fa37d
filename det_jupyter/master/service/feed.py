"""The feed: numbered items about experiments, stored in order, and streams of its items.

An item that differs from the one before only in a trial's progress is *passing*: the next item
replaces it. So a day of training leaves metrics in the feed, and not ten views a second, and a
client that follows from an old number still gets everything that matters. Numbers are never
reused.

A *whole* item has all fields of an experiment or trial. Other items of these kinds leave out the
fields that are large and seldom change; followers keep their values from the item before. After a
minute only the last item of each experiment and trial is kept, and its last whole one.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Literal

from det_jupyter.contract.messages import FeedItem
from det_jupyter.master.service.database import delete_in_parts
from det_jupyter.master.service.stored_rows import as_change_of_curves, as_item, readable

_PAGE = 500  # items read at a time; other requests are served in between
# Time, experiment, trial, first and last step, and the record as JSON.
MetricsRow = tuple[float, int, int, int, int, str]
ItemKind = Literal["experiment", "trial", "checkpoint", "truncated", "cluster"]


class Feed:
    """The table `feed`."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

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
        """Append an item other than metrics, and delete passing items that it replaces.

        Args:
            text: Its data as JSON.
            is_passing: Whether the next item of this kind and of the same trial replaces it.
            is_whole: Whether it has all fields.
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
        """Delete older items of an experiment and its trials, except for the last ones.

        Some are deleted in each step, in a transaction of their own.

        Args:
            before: UTC seconds; newer items stay.
        """
        states = "FROM feed WHERE experiment_id = ? AND kind IN ('experiment', 'trial')"
        last = f"SELECT max(seq) {states}"
        each = "GROUP BY kind, trial_id"
        yield from delete_in_parts(
            self._db,
            "feed",
            "seq",
            "experiment_id = ? AND kind IN ('experiment', 'trial') AND at < ? "
            f"AND seq NOT IN ({last} {each} UNION ALL {last} AND is_whole {each})",
            [experiment_id, before, experiment_id, experiment_id],
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

    def after(
        self, number: int, experiment_id: int | None, limit: int, *, is_brief: bool = False
    ) -> list[FeedItem]:
        """Return items after this number, oldest first.

        Args:
            experiment_id: Only items of this experiment, and of 0, which are for all followers.
            is_brief: Leave out the data.
        """
        data = "'{}'" if is_brief else "json"
        which, values = "seq > ?", [number]
        if experiment_id is not None:
            which, values = f"{which} AND experiment_id IN (?, 0)", [number, experiment_id]
        rows = self._db.execute(
            f"SELECT seq, at, kind, experiment_id, trial_id, {data} FROM feed "
            f"WHERE {which} ORDER BY seq LIMIT ?",
            (*values, limit),
        ).fetchall()
        items = list(readable(rows, as_item))
        if rows and not items:
            return self.after(rows[-1][0], experiment_id, limit, is_brief=is_brief)
        return items

    def metrics_after(self, number: int, experiment_id: int) -> list[FeedItem]:
        """Return the items after this number that change an experiment's curves, oldest first."""
        rows = self._db.execute(
            "SELECT seq, at, kind, experiment_id, trial_id, json FROM feed "
            "WHERE experiment_id = ? AND seq > ? AND kind IN ('metrics', 'truncated') "
            "ORDER BY seq",
            (experiment_id, number),
        )
        return list(readable(rows, as_change_of_curves))


class CommitSignal:
    """Wakes the tasks that wait for the next commit, and calls functions at each."""

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


async def follow(
    feed: Feed,
    commits: CommitSignal,
    *,
    after: int,
    experiment_id: int | None,
    is_endless: bool,
    heartbeat_s: float,
    is_brief: bool = False,
) -> AsyncIterator[bytes]:
    """Yield feed items after this number as JSON lines, and an empty line as a heartbeat.

    Args:
        after: Number of the last item that the follower has.
        is_endless: Wait for further items until `commits` is closed; else end with the last item.
        heartbeat_s: Longest time between two lines.
        is_brief: Leave out the data of items, and items of metrics.
    """
    while not commits.is_closed:
        # Nothing is awaited between a read that finds nothing and the wait, so no commit is
        # missed.
        if items := feed.after(after, experiment_id, _PAGE, is_brief=is_brief):
            sent = [item for item in items if not (is_brief and item.kind == "metrics")]
            if sent:
                yield b"".join(item.model_dump_json().encode() + b"\n" for item in sent)
            after = items[-1].seq
        elif not is_endless:
            return
        elif not await commits.wait(heartbeat_s):
            yield b"\n"
