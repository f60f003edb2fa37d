"""Selects the next batch of reports for the master, and tracks what the master has stored.

The master applies a batch in order: starts, places of ranks that leave, processes on the devices,
samples of the computer, journals, output, and the exits of runs whose files were sent completely.
Samples are sent once, even if the request fails. Journals of all runs are sent before any output,
and each batch begins with another file, so a rank that prints or reports without end delays no
other rank's metrics.

A file that cannot be read (no descriptor is free, the disk fails) is left out of the batch. It may
contain the reason for the run's end, so the exit waits for it, but not longer than 30 s.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from det_jupyter.agent.link.trial_files import TrialFiles
from det_jupyter.agent.link.uploads import Uploads
from det_jupyter.agent.runs.file_chunks import BAR_ENDS, Stream
from det_jupyter.agent.runs.run import AgentRun
from det_jupyter.agent.sampler.box import SampleBox
from det_jupyter.contract.messages import (
    AgentReport,
    Chunk,
    DevicesSeen,
    DisksSeen,
    GangExited,
    GangStarted,
    RanksSeen,
    RoomReported,
)

logger = logging.getLogger(__name__)

BATCH_BYTES = 1024 * 1024
UNREADABLE_S = 30.0
BAR_S = 1.0  # interval in which a progress bar is sent: each takes a request
RESEND_S = 5.0  # interval in which an exit is repeated until the master closes the run


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportBatch:
    """The reports of one request; `is_last` if nothing else can be sent now."""

    reports: list[AgentReport]
    is_last: bool


class ReportOutbox:
    """The reports that one agent sends.

    Args:
        runs: The agent's runs by id (a live mapping).
        samples: The samples of the agent's computer.
        uploads: Uploads the files that records of journals name.
        files: Sends TensorBoard files to a master on another computer.
    """

    def __init__(
        self,
        runs: Mapping[str, AgentRun],
        samples: SampleBox | None = None,
        uploads: Uploads | None = None,
        files: TrialFiles | None = None,
    ) -> None:
        self._runs = runs
        self._uploads = uploads
        self._files = files
        self._samples = samples or SampleBox()
        self._num_batches = 0
        self._devices: DevicesSeen | None = None  # the latest report
        self._are_devices_sent = False
        self._disks: DisksSeen | None = None  # the latest report, until it is sent once

    def note_disks(self, seen: DisksSeen) -> None:
        """Set the report of the disks, to be sent once."""
        self._disks = seen

    def note_devices(self, seen: DevicesSeen) -> None:
        """Set the report of processes on the devices, to be sent now and to each new master."""
        self._devices, self._are_devices_sent = seen, False

    def next_batch(self, now: float) -> ReportBatch:
        """Return the reports to send now (`now` is monotonic); only samples are marked as sent."""
        runs = list(self._runs.values())
        batch = _BatchBuilder(now, self._uploads)
        if self._uploads is not None:
            self._uploads.remove_copies(self._runs.keys())
        batch.reports += [run.started for run in runs if run.started]
        batch.reports += [run.seen for run in runs if run.seen and not run.is_seen_sent]
        batch.reports += [run.room for run in runs if run.room and not run.is_room_sent]
        if self._disks is not None:
            batch.reports.append(self._disks)
            self._disks = None
        if self._devices is not None and not self._are_devices_sent:
            batch.reports.append(self._devices)
        if self._samples.is_due(now):
            batch.reports.append(self._samples.take(now))
        self._num_batches += 1
        for are_journals in (True, False):
            for run, stream in self._rotated(runs, are_journals=are_journals):
                batch.add(run, stream)
        batch.reports += [
            run.exited
            for run in runs
            if run.exited
            and not batch.has_more_of(run)
            and (self._files is None or self._files.are_sent(run))
            and (run.exit_sent_at is None or now - run.exit_sent_at >= RESEND_S)
        ]
        return ReportBatch(reports=batch.reports, is_last=not batch.unfinished)

    def _rotated(
        self, runs: Iterable[AgentRun], *, are_journals: bool
    ) -> list[tuple[AgentRun, Stream]]:
        """Return the journals or the outputs of all runs; each batch begins with another one."""
        files = [
            (run, stream)
            for run in runs
            for stream in run.streams
            if stream.is_journal is are_journals
        ]
        first = self._num_batches % max(1, len(files))
        return files[first:] + files[:first]

    def note_sent(self, batch: ReportBatch, now: float) -> None:
        """Mark the reports of a batch as stored by the master; for files see `set_offsets`."""
        for report in batch.reports:
            match report:
                case GangStarted() if run := self._runs.get(report.allocation_id):
                    run.started = None
                case RanksSeen() if run := self._runs.get(report.allocation_id):
                    run.is_seen_sent |= report is run.seen  # unless a newer report was set since
                case GangExited() if run := self._runs.get(report.allocation_id):
                    run.exit_sent_at = now
                case RoomReported() if run := self._runs.get(report.allocation_id):
                    run.is_room_sent |= report is run.room  # unless a newer one was set since
                case DevicesSeen():
                    # Unless a newer report was set since.
                    self._are_devices_sent |= report is self._devices
                case Chunk() if report.text.endswith(BAR_ENDS):
                    self._postpone_bar(report, now + BAR_S)

    def _postpone_bar(self, chunk: Chunk, due: float) -> None:
        run = self._runs.get(chunk.allocation_id)
        for stream in run.streams if run else ():
            if stream.name == chunk.stream:
                stream.bar_due = due

    def expects_offsets(self, batch: ReportBatch) -> bool:
        """Return whether the master's answer to this batch must change an offset.

        Offsets of runs that were closed meanwhile do not count.
        """
        return any(
            isinstance(report, Chunk) and report.allocation_id in self._runs
            for report in batch.reports
        )

    def set_offsets(self, offsets: Mapping[str, Mapping[str, int]]) -> bool:
        """Set the offsets up to which the master has files; return whether one has changed."""
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
        """Reset everything for a new connection, with the offsets that its master has stored.

        A file without an offset is sent from its beginning.
        """
        self._are_devices_sent = False
        self._samples.reconnected()
        for run in self._runs.values():
            run.exit_sent_at = None
            run.is_seen_sent = False
            run.is_room_sent = False
            for stream in run.streams:
                stream.offset = 0
        self.set_offsets(offsets)


class _BatchBuilder:
    """A batch to which files are added until it is full."""

    def __init__(self, now: float, uploads: Uploads | None) -> None:
        self.reports: list[AgentReport] = []
        self.unfinished: set[str] = set()  # runs with more to send than fits
        self._held: set[str] = set()  # runs with a checkpoint that must be uploaded first
        self._uploads = uploads
        self._unreadable: set[str] = set()  # runs with a file that cannot be read now
        self._room_bytes = BATCH_BYTES
        self._now = now

    def add(self, run: AgentRun, stream: Stream) -> None:
        try:
            self._add_chunks(run, stream)
            stream.unreadable_since = None
        except OSError as error:
            if stream.unreadable_since is None:
                stream.unreadable_since = self._now
                logger.error("%s cannot be read; it is tried again: %s", stream.path, error)
            if self._now - stream.unreadable_since < UNREADABLE_S:
                self._unreadable.add(stream.allocation_id)

    def _add_chunks(self, run: AgentRun, stream: Stream) -> None:
        with_bar = self._now >= stream.bar_due
        for chunk in stream.chunks(is_final=not run.is_alive, with_bar=with_bar):
            if self._room_bytes <= 0:
                self.unfinished.add(stream.allocation_id)
                return
            sendable: Chunk | None = chunk
            if self._uploads is not None and stream.is_journal:
                sendable = self._uploads.sendable(run, chunk)
            if sendable is not None:
                self.reports.append(sendable)
                self._room_bytes -= sendable.size_bytes
            if sendable is None or sendable.size_bytes < chunk.size_bytes:
                self._held.add(stream.allocation_id)
                return

    def has_more_of(self, run: AgentRun) -> bool:
        return run.id in self.unfinished | self._unreadable | self._held
