"""Runs the processes that send experiments to trackers, one for each place and its credentials.

    feed ──► waits at its place ──► a process (`det_jupyter/trackers/`) ──► position advanced
                                        │             ├──► refused: the experiment is tried later
                                        │             └──► unreachable: the place is tried later
                                        └── ends when it has had nothing to do for a while

Nothing waits for them. A process asks for what is behind, and reports how far it has come. One
that ends without a report (it was killed, for example) is started again, and sends nothing twice
(`det_jupyter/trackers/`). When the master ends, so do they. If more places have something to be
sent than processes may run, they take turns.
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

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.ownership import open_own
from det_jupyter.contract.messages import TrackerOrder, TrackerProgress, TrackerWork
from det_jupyter.errors import DetError, NotFound
from det_jupyter.master.service.service import Service
from det_jupyter.master.service.tracked import Tracked
from det_jupyter.master.service.tracker_orders import order_of, variables_of
from det_jupyter.master.service.tracker_places import Place

logger = logging.getLogger(__name__)

LOG = "trackers.log"
_PERIOD_S = 1.0
_AFTER_ERROR_S = 60.0
_MOST_AT_ONCE = 8
_TURN_S = 60.0  # after which a process ends if another place waits for its turn
_END_S = 2.0


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
        self._places = self._tracked.places
        self._clock = clock
        self._processes: dict[Place, asyncio.Task[None]] = {}
        self._seq_seen: int | None = None  # of the feed; what is behind was looked for up to it

    async def run(self) -> None:
        """Start what is due about every second, until cancelled."""
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
            await self.close()

    async def close(self) -> None:
        """End the processes."""
        tasks = list(self._processes.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def start_due(self) -> None:
        """Find what is behind now, and start the processes of places where something is due."""
        await self._find_waiting()
        now = self._clock()
        for place in sorted(self._places, key=lambda each: each.began_at):
            if len(self._processes) < _MOST_AT_ONCE and not place.group and place.is_due(now):
                place.group, place.began_at = uuid.uuid4().hex, now
                self._processes[place] = asyncio.create_task(self._watch(place))

    async def _find_waiting(self) -> None:
        """Look at the rows of experiments that were reported on; the first time, at all rows."""
        last_seq, seen = self._service.store.feed.last_seq, self._seq_seen
        if last_seq == seen:
            return
        rows = self._tracked.behind() if seen is None else self._tracked.reported_since(seen)
        for row in rows:
            place = await self._place_of(row)
            place.waiting.setdefault(row.id, row.next_at)
        self._seq_seen = last_seq

    async def _place_of(self, row: Tracked) -> Place:
        return self._places.of(row.id) or await self._join(row)

    async def _join(self, row: Tracked) -> Place:
        variables = await variables_of(self._service.store.addresses, row.environment)
        return self._places.join(row.id, row.tracker, variables)

    async def send_now(self, experiment_id: int) -> None:
        """Have an experiment sent at once, also where something has failed before."""
        for row in self._tracked.of(experiment_id):
            place = await self._join(row)  # its variables may be others now
            place.waiting[row.id] = place.next_at = 0.0

    async def _watch(self, place: Place) -> None:
        try:
            order = await order_of(
                self._service.store.addresses,
                place,
                own=self._tracked.file.content.trackers,
                folder=paths.data_dir() / "wandb",
            )
            if status := await self._run(order):
                self._fail(place, _end_in_words(status))
        except DetError as error:
            self._fail(place, str(error))
        except Exception:
            logger.exception("the process of a tracker could not be run")
            await asyncio.sleep(_AFTER_ERROR_S)
        finally:
            place.group = ""
            del self._processes[place]

    # what the processes ask for and report

    def work(self, group: str) -> list[TrackerWork]:
        """Return what a process is to send next: some of what is behind and due.

        Raises:
            NotFound: It is not one of these processes, or its turn is over: it has to end.
        """
        place, now = self._place_named(group), self._clock()
        if now - place.began_at > _TURN_S and self._has_others_waiting(now):
            raise NotFound("it is the turn of another place")
        while due := place.take_due(now):
            rows = self._tracked.behind(due)
            for number in set(due) - {row.id for row in rows}:
                del place.waiting[number]
            if rows:
                return [self._tracked.work_of(row) for row in rows]
        return []

    def _has_others_waiting(self, now: float) -> bool:
        is_full = len(self._processes) >= _MOST_AT_ONCE
        return is_full and any(not each.group and each.is_due(now) for each in self._places)

    def advance(self, number: int, progress: TrackerProgress) -> None:
        """Store how far a tracker is with an experiment, and show its problem if it is new."""
        if (place := self._places.of(number)) is not None:
            had_problem, announced = bool(place.problem), place.recover()
            if had_problem:
                self._service.store_facts()
            for experiment_id in announced:
                self._service.announce_experiment(experiment_id)
        changed = self._tracked.advance(number, progress, self._clock())
        if changed is not None:
            if progress.problem:
                logger.warning("tracker %d: %s", number, progress.problem)
            self._service.announce_experiment(changed)

    def fail(self, group: str, problem: str) -> None:
        """Note that the tracker of a process cannot be reached, and show it.

        Raises:
            NotFound: It is not one of these processes.
        """
        self._fail(self._place_named(group), problem)

    def _fail(self, place: Place, problem: str) -> None:
        is_other = place.fail(problem, self._clock())
        self._service.store_facts()
        if is_other:
            logger.warning("tracker %s: %s", place.tracker.label, problem)
            for experiment_id in self._running_at(place):
                place.announced.add(experiment_id)
                self._service.announce_experiment(experiment_id)

    def _running_at(self, place: Place) -> list[int]:
        """Return the experiments of a place that train; of others, views are not followed."""
        machine = self._service.machine
        return [
            each.id
            for each in machine.state.unfinished_experiments()
            if any(trial.holds_slots for trial in machine.indexes.unfinished_trials(each.id))
            and any(row.id in place.waiting for row in self._tracked.of(each.id))
        ]

    def _place_named(self, group: str) -> Place:
        for place in self._processes:
            if place.group == group:
                return place
        raise NotFound("this process was replaced by another one")


def _end_in_words(status: int) -> str:
    end = f"was ended by signal {-status}" if status < 0 else f"has ended with status {status}"
    return f"the process that sends to it {end}; {LOG} has more"


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
