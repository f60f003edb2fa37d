"""Reads what each rank of a gang is doing, and reports it once the gang is asked to leave.

Of an elastic trial, that its code checks for requests is reported at once: else it does not grow.

It reads the control pages about once a second, so times are known to that precision. If ranks
wrote the times themselves, that would slow them down.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from det_jupyter.agent.runs.active_run import LivingGang
from det_jupyter.agent.runs.run import AgentRun
from det_jupyter.contract.messages import RanksSeen
from det_jupyter.contract.messages.leaving import RankProgress
from det_jupyter.contract.run.control_page import ControlPage
from det_jupyter.contract.values.sizes import sizes_of

_READ_S = 1.0
_REPORT_S = (2.0, 10.0)  # shortest time between two reports of a gang: first, and longest


@dataclass(slots=True)
class WatchedGang:
    """The last readings of one gang's control page."""

    places: dict[int, RankProgress] = field(default_factory=dict)
    reported_at: float = float("-inf")  # on the monotonic clock
    pause_s: float = _REPORT_S[0]

    def read(self, run: AgentRun, page: ControlPage, *, now: float, monotonic: float) -> bool:
        """Read a gang's page; if there is something to report, set `run.seen` and return True.

        Args:
            run: The gang's run here.
            page: Its control page.
            now: UTC seconds.
            monotonic: Seconds on the monotonic clock.
        """
        for rank in run.process_ranks:
            before = self.places.get(rank)
            batch, is_exchanging = page.batch_of(rank), page.is_exchanging(rank)
            if before is None or (before.batch, before.is_exchanging) != (batch, is_exchanging):
                self.places[rank] = RankProgress(
                    batch=batch, is_exchanging=is_exchanging, since=now
                )
        is_due = page.is_raised("preempt") or _checks_first(run, page)
        if not is_due or monotonic - self.reported_at < self.pause_s:
            return False
        seen = RanksSeen(
            allocation_id=run.id,
            at=now,
            places=dict(self.places),
            checked_at=page.checked_at(),
            saving_since=page.saving_since(),
        )
        if run.seen is not None and seen == run.seen.model_copy(update={"at": now}):
            return False
        run.seen, run.is_seen_sent = seen, False
        if self.reported_at > 0:
            self.pause_s = min(1.5 * self.pause_s, _REPORT_S[1])
        self.reported_at = monotonic
        return True


def _checks_first(run: AgentRun, page: ControlPage) -> bool:
    """Return whether the code of an elastic trial checks for requests, which is not reported."""
    return (
        run.seen is None and page.checked_at() is not None and sizes_of(run.plan.config).is_elastic
    )


async def watch_places(living: Callable[[], Sequence[LivingGang]], news: asyncio.Event) -> None:
    """Read the pages of living gangs, and set `news` if one is to be reported; until cancelled."""
    watched: dict[str, WatchedGang] = {}
    while True:
        gangs = {gang.run.id: gang.run for gang in living()}
        watched = {key: watched.get(key) or WatchedGang() for key in gangs}
        for key, run in gangs.items():
            try:
                with run.open_page() as page:
                    is_new = watched[key].read(
                        run, page, now=time.time(), monotonic=time.monotonic()
                    )
            except (OSError, ValueError):  # user code may have removed the folder
                continue
            if is_new:
                news.set()
        await asyncio.sleep(_READ_S)
