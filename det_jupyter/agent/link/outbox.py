"""Chooses what the master is told next, and remembers what it has. Pure but for reading files.

A batch is applied in order: starts, then who else uses the devices, then journals, then output,
then the exits of runs of which nothing is left to send. Journals of all runs go before any output,
and output takes turns, so a rank that prints without end delays nobody's metrics.

A file that cannot be read (no descriptor is free, the disk fails) sends nothing this time. As it
may hold how the run ended, the exit waits for it, but not for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from det_jupyter.agent.runs.run import Run
from det_jupyter.agent.runs.streams import Stream
from det_jupyter.wire import AgentReport, Chunk, DevicesSeen, GangExited, GangStarted

logger = logging.getLogger(__name__)

BATCH_BYTES = 1024 * 1024
UNREADABLE_S = 30.0  # how long an exit waits for files that cannot be read
RETELL_S = 5.0  # an exit is told again this often, until the master closes the run


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What is sent in one request; `is_last` when there is nothing more to send for now."""

    reports: list[AgentReport]
    is_last: bool


class Outbox:
    """The outbound side of an agent."""

    def __init__(self, runs: Mapping[str, Run]) -> None:
        self._runs = runs
        self._turn = 0  # whose output goes first
        self._devices: DevicesSeen | None = None  # the latest
        self._are_devices_told = False

    def note_devices(self, seen: DevicesSeen) -> None:
        """Take note of who else uses the devices, to be told now and to each new master."""
        self._devices, self._are_devices_told = seen, False

    def next_batch(self, now: float) -> Batch:
        """Return what to send now (`now` is monotonic). Nothing counts as sent by this."""
        runs = list(self._runs.values())
        filling = _Filling(now)
        filling.reports += [run.started for run in runs if run.started]
        if self._devices is not None and not self._are_devices_told:
            filling.reports.append(self._devices)
        for run in runs:
            for stream in run.streams:
                if stream.is_journal:
                    filling.add(run, stream)
        for run, stream in self._outputs_in_turn(runs):
            filling.add(run, stream)
        filling.reports += [
            run.exited
            for run in runs
            if run.exited and not filling.has_more_of(run) and _is_due(run, now)
        ]
        return Batch(reports=filling.reports, is_last=not filling.unfinished)

    def _outputs_in_turn(self, runs: Iterable[Run]) -> list[tuple[Run, Stream]]:
        outputs = [
            (run, stream) for run in runs for stream in run.streams if not stream.is_journal
        ]
        self._turn = (self._turn + 1) % max(1, len(outputs))
        return outputs[self._turn :] + outputs[: self._turn]

    def told(self, batch: Batch, now: float) -> None:
        """Take note that the master has the events of a batch (offsets it says by itself)."""
        for report in batch.reports:
            match report:
                case GangStarted() if run := self._runs.get(report.allocation_id):
                    run.started = None
                case GangExited() if run := self._runs.get(report.allocation_id):
                    run.exit_told_at = now
                case DevicesSeen():
                    self._are_devices_told |= report is self._devices  # there may be newer ones

    def waits_for(self, batch: Batch) -> bool:
        """Whether the master's offsets should move when it has got this.

        Not for runs that it has closed since: it may say so before it answers.
        """
        return any(
            isinstance(report, Chunk) and report.allocation_id in self._runs
            for report in batch.reports
        )

    def set_offsets(self, offsets: Mapping[str, Mapping[str, int]]) -> bool:
        """Take over what the master says it has; return whether that is news."""
        has_moved = False
        for allocation_id, by_name in offsets.items():
            run = self._runs.get(allocation_id)
            for stream in run.streams if run else ():
                offset = by_name.get(stream.name, stream.offset)
                has_moved |= offset != stream.offset
                stream.offset = offset
                stream.free()
        return has_moved

    def reconnected(self, offsets: Mapping[str, Mapping[str, int]]) -> None:
        """Begin anew with a master that says what it has: what it does not name, it lacks."""
        self._are_devices_told = False
        for run in self._runs.values():
            run.exit_told_at = None
            for stream in run.streams:
                stream.offset = 0
        self.set_offsets(offsets)


class _Filling:
    """A batch in the making."""

    def __init__(self, now: float) -> None:
        self.reports: list[AgentReport] = []
        self.unfinished: set[str] = set()
        self._unread: set[str] = set()
        self._room_bytes = BATCH_BYTES
        self._now = now

    def add(self, run: Run, stream: Stream) -> None:
        try:
            self._add_chunks(run, stream)
            stream.unreadable_since = None
        except OSError as error:
            if stream.unreadable_since is None:
                stream.unreadable_since = self._now
                logger.error("%s cannot be read; it is tried again: %s", stream.path, error)
            if self._now - stream.unreadable_since < UNREADABLE_S:
                self._unread.add(stream.allocation_id)

    def _add_chunks(self, run: Run, stream: Stream) -> None:
        for chunk in stream.chunks(is_final=not run.is_alive):
            if self._room_bytes <= 0:
                self.unfinished.add(stream.allocation_id)
                return
            self.reports.append(chunk)
            self._room_bytes -= chunk.size_bytes

    def has_more_of(self, run: Run) -> bool:
        return run.id in self.unfinished or run.id in self._unread


def _is_due(run: Run, now: float) -> bool:
    return run.exit_told_at is None or now - run.exit_told_at >= RETELL_S
