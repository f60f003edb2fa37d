"""Runs the processes that send experiments to trackers, one for each place and its credentials.

    feed ──► behind ──► a process for its place (`det_jupyter/trackers/`) ──► position advanced
                            │                                            └──► problem: tried again
                            └── ends when it has had nothing to do for a while

Nothing waits for them. A process asks for what is behind, and reports how far it has come. One
that ends without a report (it was killed, for example) is started again, and sends nothing twice
(`det_jupyter/trackers/`). When the master ends, so do they.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.ownership import open_own
from det_jupyter.contract.messages import TrackerOrder, TrackerProgress, TrackerWork
from det_jupyter.errors import DetError
from det_jupyter.master.service.service import Service
from det_jupyter.master.service.tracked import Tracked
from det_jupyter.master.service.tracker_orders import order_of

logger = logging.getLogger(__name__)

LOG = "trackers.log"
_PERIOD_S = 1.0
_AFTER_ERROR_S = 60.0
_MOST_AT_ONCE = 8
_END_S = 2.0


@dataclass(slots=True)
class _Sender:
    """A process, and the rows that it looks after, by number."""

    group: str
    ids: set[int] = field(default_factory=set)
    task: asyncio.Task[None] | None = None


class Tracking:
    """Starts and watches the processes.

    Args:
        service: The master's service.
        clock: Returns the present, in UTC seconds.
        run: Runs a process to its end, and returns its exit status.
    """

    def __init__(
        self,
        service: Service,
        *,
        clock: Callable[[], float] = time.time,
        run: Callable[[TrackerOrder], Awaitable[int]] | None = None,
    ) -> None:
        self._service = service
        self._run = run or run_process
        self._tracked = service.store.tracked
        self._clock = clock
        self._senders: dict[str, _Sender] = {}  # by what they send to
        self._seq_seen = -1
        self._look_at = 0.0  # when something is due that could not be done before

    async def run(self) -> None:
        """Look for what is behind about every second, until cancelled."""
        try:
            while True:
                try:
                    await self.start_due()
                    pause_s = _PERIOD_S
                except Exception:  # a full disk, for example; it is tried again
                    logger.exception("trackers could not be looked after")
                    pause_s = _AFTER_ERROR_S
                await asyncio.sleep(pause_s)
        finally:
            tasks = [each.task for each in self._senders.values() if each.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def start_due(self) -> None:
        """Give what is behind and due to the process of its place; start those processes."""
        seq, now = self._service.store.feed.last_seq, self._clock()
        if seq == self._seq_seen and now < self._look_at:
            return
        self._seq_seen, self._look_at = seq, now + _AFTER_ERROR_S
        cared_for = {number for each in self._senders.values() for number in each.ids}
        for row in self._tracked.behind():
            if row.id in cared_for:
                continue
            if row.next_at > now or len(self._senders) >= _MOST_AT_ONCE:
                later = row.next_at if row.next_at > now else now + _PERIOD_S
                self._look_at = min(self._look_at, later)
                continue
            try:
                await self._give(row)
            except DetError as error:
                self.advance(row.id, TrackerProgress(problem=str(error)))

    def look(self) -> None:
        """Look for what is behind soon, though nothing new was reported."""
        self._look_at = 0.0

    async def _give(self, row: Tracked) -> None:
        order = await order_of(
            self._service.store.addresses,
            row.tracker,
            row.environment,
            group=uuid.uuid4().hex,
            folder=paths.data_dir() / "wandb",
        )
        place = order.model_dump_json(exclude={"group": True, "tracker": {"name"}})
        sender = self._senders.get(place)
        if sender is None:
            sender = self._senders[place] = _Sender(order.group)
            sender.task = asyncio.create_task(self._watch(place, sender, order))
        sender.ids.add(row.id)

    async def _watch(self, place: str, sender: _Sender, order: TrackerOrder) -> None:
        try:
            status = await self._run(order)
            if status:
                self._report_end(sender, status)
        except DetError as error:
            self._report(sender, str(error))
        except Exception:
            logger.exception("the process of a tracker could not be run")
            await asyncio.sleep(_AFTER_ERROR_S)
        finally:
            del self._senders[place]
            self.look()

    def _report_end(self, sender: _Sender, status: int) -> None:
        end = f"was ended by signal {-status}" if status < 0 else f"has ended with status {status}"
        self._report(sender, f"the process that sends to it {end}; {LOG} has more")

    def _report(self, sender: _Sender, problem: str) -> None:
        """Report a problem of all that a process had to do, and has no problem of its own."""
        now = self._clock()
        for row in self._tracked.behind():
            if row.id in sender.ids and row.next_at <= now:
                self.advance(row.id, TrackerProgress(problem=problem))

    def work(self, group: str) -> list[TrackerWork] | None:
        """Return what a process is to send now; None: it is not one of these, and shall end."""
        sender = next((each for each in self._senders.values() if each.group == group), None)
        if sender is None:
            return None
        now = self._clock()
        rows = [row for row in self._tracked.behind() if row.id in sender.ids]
        return [self._tracked.work_of(row) for row in rows if row.next_at <= now]

    def advance(self, number: int, progress: TrackerProgress) -> None:
        """Store how far a tracker is, and show it if its problem is another one now."""
        if self._tracked.advance(number, progress, self._clock()):
            if progress.problem:
                logger.warning("tracker %d is behind: %s", number, progress.problem)
            experiment_id = self._tracked.experiment_of(number)
            if experiment_id is not None:
                self._service.announce_experiment(experiment_id)


async def run_process(order: TrackerOrder) -> int:
    """Run the process of a tracker; return its exit status. It is killed if this is cancelled.

    Raises:
        DetError: It cannot be started.
    """
    log = open_own(paths.log_dir() / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "det_jupyter.trackers",
            stdin=asyncio.subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=paths.data_dir(),
        )
    except OSError as error:
        raise DetError(f"{sys.executable} cannot be started: {error.strerror}") from None
    finally:
        os.close(log)
    assert process.stdin is not None
    try:
        with suppress(OSError, RuntimeError):  # it has ended already
            process.stdin.write(json.dumps(order.model_dump()).encode() + b"\n")
            await process.stdin.drain()
        return await process.wait()
    finally:
        process.stdin.close()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # and what its library has started
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await process.wait()
