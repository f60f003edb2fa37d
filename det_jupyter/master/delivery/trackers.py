"""Experiments that trackers do not have completely: a process for each tracker sends them.

    feed ──► waits at its place ──► a process (`det_jupyter/trackers/`) ──► position advanced
                                        │             ├──► refused: the experiment is tried later
                                        │             └──► unreachable: the place is tried later
                                        └── ends when it has had nothing to do for a while

A process requests the experiments that are behind, and reports its progress. A process that ends
without a report (because it was killed, for example) is started again, and sends nothing twice
(`det_jupyter/trackers/`). The processes end with the master.

If a tracker cannot be reached, all experiments that wait for it share one pause: 5 s, 10 s, 20 s,
and so on up to five minutes. A new master tries all trackers at once.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field

from det_jupyter.config.tracker_section import Tracker
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.ownership import open_own
from det_jupyter.contract.messages import TrackerOrder, TrackerProgress, TrackerWork
from det_jupyter.errors import DetError, NotFound
from det_jupyter.master.delivery.outbox import Outbox
from det_jupyter.master.delivery.programs import run_program
from det_jupyter.master.service.address_checks import (
    find_missing_library,
    find_order,
    refuse_resolved,
)
from det_jupyter.master.service.service import Service
from det_jupyter.master.service.storing.attempts import TRACKERS
from det_jupyter.master.service.storing.tracked import Tracked

logger = logging.getLogger(__name__)

LOG = "trackers.log"
_PERIOD_S = 1.0
_AT_ONCE = 200  # experiments that a process gets in one answer


@dataclass(slots=True, kw_only=True, eq=False)
class TrackerPlace:
    """A tracker with its environment variables, to which one process sends.

    Args:
        tracker: The tracker's entry, with references instead of secrets.
        variables: The values of the references, and credentials, from where the experiments were
            submitted.
        waiting: When each row of `tracked` that may be behind is due; by row, in the order of
            turns.
        group: The name of its process; empty: there is none.
        attempts: The number of attempts in a row that did not reach the tracker.
        next_at: When to try again.
        problem: Why the last attempt did not reach the tracker.
    """

    tracker: Tracker
    variables: Mapping[str, str]
    waiting: dict[int, float] = field(default_factory=dict)
    group: str = ""
    attempts: int = 0
    next_at: float = 0.0
    problem: str = ""

    def due(self, now: float) -> list[int]:
        """Return the rows that are due, ignoring the pause of the place."""
        return [number for number, at in self.waiting.items() if at <= now]


class Trackers:
    """The channel of trackers.

    Args:
        service: The master's service.
        clock: Returns the present time, UTC seconds.
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
        self._rows = service.store.tracked
        self._addresses = service.store.addresses
        self._clock = clock
        self._places: dict[str, TrackerPlace] = {}  # by tracker and variables
        self._place_of_row: dict[int, TrackerPlace] = {}
        self._seq_seen: int | None = None  # number of the feed item up to which rows were searched
        self.outbox = Outbox[TrackerPlace](self, service, clock=clock, period_s=_PERIOD_S)

    @property
    def is_sending(self) -> bool:
        """Whether something has to be sent to a tracker that can be reached."""
        now = self._clock()
        return any(not place.attempts and at <= now for place, at in self.due_at().items())

    async def find(self) -> None:
        """Find the rows of experiments with new feed items; at the first call, find all rows."""
        last_seq, seen = self._service.store.feed.last_seq, self._seq_seen
        if last_seq == seen:
            return
        if seen is None:
            self._rows.forget_attempts()
        rows = self._rows.behind() if seen is None else self._rows.reported_since(seen)
        for row in rows:
            place = self._place_of_row.get(row.id) or await self._join(row)
            if row.id not in place.waiting:
                place.waiting[row.id] = row.next_at
                if place.attempts:
                    self._show_attempts(place, [row.id])
        self._seq_seen = last_seq

    async def _join(self, row: Tracked) -> TrackerPlace:
        """Return the place of a row, with its present variables."""
        variables = await self._addresses.variables(row.environment)
        entry = row.tracker.model_dump(exclude_none=True, exclude={"name"})
        key = json.dumps([entry, variables], sort_keys=True)
        place = self._places.setdefault(
            key, TrackerPlace(tracker=row.tracker, variables=variables)
        )
        former = self._place_of_row.get(row.id)
        if former is not None and former is not place:
            former.waiting.pop(row.id, None)
        self._place_of_row[row.id] = place
        return place

    async def send_now(self, experiment_id: int) -> None:
        """Send an experiment as soon as possible, also to trackers where attempts have failed."""
        for row in self._rows.of(experiment_id):
            place = await self._join(row)
            place.waiting[row.id] = place.next_at = 0.0

    def due_at(self) -> Mapping[TrackerPlace, float]:
        """Return when each place with waiting rows is due."""
        return {
            place: max(place.next_at, min(place.waiting.values()))
            for place in self._places.values()
            if place.waiting
        }

    async def send(self, place: TrackerPlace) -> None:
        """Run the process of a place until it ends."""
        if not self._behind(place):  # the rows were deleted, or a user has stopped sending
            return
        place.group, folder = uuid.uuid4().hex, str(paths.data_dir() / "wandb")
        began_at = self._clock()
        try:
            for problem in find_missing_library(place.tracker):
                raise DetError(problem.text)
            order = await find_order(
                self._addresses, place.tracker, place.variables, group=place.group, folder=folder
            )
            await refuse_resolved(order)
            if status := await self._run(order):
                end = f"signal {-status}" if status < 0 else f"status {status}"
                what = "was ended by" if status < 0 else "has ended with"
                self._fail(place, f"the process that sends to it {what} {end}; {LOG} has more")
        except DetError as error:
            self._fail(place, str(error))
        finally:
            place.group = ""
            # It ended at once, as it found no master, for example.
            if (now := self._clock()) < began_at + _PERIOD_S:
                place.next_at = max(place.next_at, now + _PERIOD_S)

    # Requests and reports of the processes.

    def work(self, group: str) -> list[TrackerWork]:
        """Return experiments that a tracker process of this group is to send next.

        Raises:
            NotFound: The process was replaced, or the turn of its place is over; it has to end.
        """
        place = next((each for each in self.outbox.sending if each.group == group), None)
        if place is None:
            raise NotFound("this process was replaced by another one")
        if not self.outbox.has_turn(place):
            raise NotFound("it is the turn of another place")
        rows = self._behind(place)
        given = {row.id for row in rows}
        for number in [each for each in place.waiting if each in given]:  # other rows are next
            place.waiting[number] = place.waiting.pop(number)
        return [self._rows.work_of(row) for row in rows]

    def _behind(self, place: TrackerPlace) -> list[Tracked]:
        """Return some rows that are due; remove rows that are not behind from `waiting`."""
        now = self._clock()
        while due := place.due(now)[:_AT_ONCE]:
            rows = self._rows.behind(due)
            for number in set(due) - {row.id for row in rows}:
                del place.waiting[number]
            if rows:
                return rows
        return []

    def advance(self, number: int, progress: TrackerProgress) -> None:
        """Store how far an experiment was sent to a tracker, or the problem; pages show both."""
        place = self._place_of_row.get(number)
        if place is not None and progress.is_unreachable:
            return self._fail(place, progress.problem)
        if place is not None and place.attempts:  # the tracker can be reached again
            place.attempts, place.next_at, place.problem = 0, 0.0, ""
            self._show_attempts(place, place.due(self._clock()))
        changed = self._rows.advance(number, progress, self._clock())
        if changed is None:
            return
        before, after = changed
        if place is not None and number in place.waiting:
            place.waiting[number] = after.next_at
        if before.problem != after.problem:
            if progress.problem:
                logger.warning("tracker %d: %s", number, progress.problem)
            self._service.announce("experiment", after.experiment_id)

    def _fail(self, place: TrackerPlace, problem: str) -> None:
        if problem != place.problem:
            logger.warning("tracker %s: %s", place.tracker.label, problem)
        place.attempts += 1
        place.next_at = self._clock() + TRACKERS.pause_s(place.attempts)
        place.problem = problem
        self._show_attempts(place, place.due(self._clock()))

    def _show_attempts(self, place: TrackerPlace, numbers: Collection[int]) -> None:
        self._rows.set_attempts(numbers, place.attempts, place.next_at, place.problem)
        # Shown by all pages, not only by those of one experiment.
        self._service.announce("cluster")


async def run_process(order: TrackerOrder) -> int:
    """Run the process of a tracker; return its exit status. It is killed if this is cancelled.

    Raises:
        DetError: The process cannot be started.
    """
    log = open_own(paths.log_dir() / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        return await run_program(
            [sys.executable, "-m", "det_jupyter.trackers"],
            order.model_dump_json().encode() + b"\n",
            output=log,
            cwd=paths.data_dir(),
            keeps_input=True,
        )
    except OSError as error:
        raise DetError(f"{sys.executable} cannot be started: {error.strerror}") from None
    finally:
        os.close(log)
