"""The feed: numbered items about experiments, stored in order; and following it.

An item that says no more than how far a trial has come is *passing*: the next one takes its place.
A day of training is then metrics, and not ten views a second; a follower from an old number misses
nothing that matters. Numbers are never reused.

A *whole* item says everything of an experiment or trial; other items of these kinds leave out what
is large and seldom changes, and followers keep what they know of it. After a minute only the last
item of a thing is kept, and its last whole one.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from typing import Literal

from det_jupyter.contract.messages import FeedItem
from det_jupyter.master.service.database import delete_in_parts
from det_jupyter.master.service.stored_rows import as_item, readable

_PAGE = 500  # items read at a time; other requests get their turn in between
# When, experiment, trial, first and last step, and the record as JSON.
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
        """Append a feed item that is no metrics; it takes the place of passing ones before it.

        Args:
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
        """Delete states from before that time on which others of the same thing have followed."""
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
        """Return items after that number, oldest first; those of experiment 0 are for all.

        Brief ones are without their data.
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


class Bell:
    """Wakes those that wait for the next commit."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self.is_closed = False

    def ring(self) -> None:
        self._rung.set()
        self._rung = asyncio.Event()

    def close(self) -> None:
        """Wake all that wait, for the last time."""
        self.is_closed = True
        self.ring()

    async def wait(self, timeout_s: float) -> bool:
        """Wait for the next ring; return False if there was none in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                return await self._rung.wait()
        return False


async def follow(
    feed: Feed,
    bell: Bell,
    *,
    after: int,
    experiment_id: int | None,
    is_endless: bool,
    heartbeat_s: float,
    is_brief: bool = False,
) -> AsyncIterator[bytes]:
    """Yield feed items after that number as JSON lines; an empty line is a sign of life.

    Args:
        after: Number of the last item that the follower knows.
        is_endless: Go on until the bell is closed; else end with the last item there is.
        heartbeat_s: The longest silence.
        is_brief: Only what has changed, not how: items without data, and none of metrics.
    """
    while not bell.is_closed:
        # Nothing is awaited between a look that finds nothing and the wait, so no ring is missed.
        if items := feed.after(after, experiment_id, _PAGE, is_brief=is_brief):
            told = [item for item in items if not (is_brief and item.kind == "metrics")]
            if told:
                yield b"".join(item.model_dump_json().encode() + b"\n" for item in told)
            after = items[-1].seq
        elif not is_endless:
            return
        elif not await bell.wait(heartbeat_s):
            yield b"\n"
