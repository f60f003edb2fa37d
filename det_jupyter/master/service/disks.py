"""The disks that are written to: their free space, and when they will be full.

    data          the master's data folder
    checkpoints   folders of the storages of unfinished experiments
    agents        the reports of agents on other computers

The rate is the change of the free space in the last ten minutes, by any program. A disk is "low"
if it will be full soon, or has less than four floors. It is "full" if writers wait, until they can
continue. Soon is within 12 times as long as the disk was watched, thus within two hours at most:
what a burst of one minute would fill in an hour is no forecast. `DET_JUPYTER_DISK_FORECAST=off`
turns the forecast off, for disks that other programs fill and empty all the time.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from det_jupyter.contract.host.disk_space import Room
from det_jupyter.contract.messages import CheckpointView, DiskReading, DiskStatus
from det_jupyter.contract.messages.disks import DiskState

FORECAST_VARIABLE = "DET_JUPYTER_DISK_FORECAST"
WINDOW_S = 600.0
_LEAST_S = 60.0  # no rate is computed from a shorter time
_AHEAD = 12
_LOW_FLOORS = 4
_FORGET_S = 60.0  # an agent's report is used for this time


@dataclass(slots=True)
class _Disk:
    """One disk: its last reading, and the free space over time, oldest first."""

    reading: DiskReading
    agent_id: str = ""
    is_full: bool = False
    seen_at: float = 0.0
    free: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, at: float, reading: DiskReading) -> None:
        room = Room(
            total_bytes=reading.total_bytes,
            free_bytes=reading.free_bytes,
            free_files=reading.free_files,
        )
        self.is_full = room.is_short() or (self.is_full and not room.is_enough())
        self.reading, self.seen_at = reading, at
        self.free.append((at, reading.free_bytes))
        while self.free[0][0] < at - WINDOW_S:
            self.free.popleft()

    def status(self, writes: Mapping[int, int], *, is_forecast: bool) -> DiskStatus:
        (began_at, before), (at, now) = self.free[0], self.free[-1]
        lost, over_s = max(0, before - now), at - began_at
        room = Room(total_bytes=self.reading.total_bytes, free_bytes=now)
        full_in_s = None
        left = max(0, now - room.floor_bytes)
        if is_forecast and over_s >= _LEAST_S and lost and left <= _AHEAD * lost:
            full_in_s = left * over_s / lost
        state: DiskState = "ok"
        files = self.reading.free_files
        if now < _LOW_FLOORS * room.floor_bytes or (files is not None and files < 1000):
            state = "low"
        if full_in_s is not None:
            state = "low"
        return DiskStatus.built_from(
            self.reading,
            agent_id=self.agent_id,
            state="full" if self.is_full else state,
            is_full=self.is_full,
            lost_bytes=lost,
            over_s=over_s,
            full_in_s=full_in_s,
            writes=dict(writes),
        )


class Disks:
    """The known disks. Kept in memory, as they are read again every few seconds."""

    def __init__(self) -> None:
        self._disks: dict[tuple[str, str], _Disk] = {}  # by agent and folder
        self._writes: dict[tuple[str, str], dict[int, int]] = {}
        self._is_forecast = os.environ.get(FORECAST_VARIABLE) != "off"

    def add_own(self, at: float, readings: Sequence[DiskReading]) -> None:
        """Set the readings of this computer's disks; its other disks are removed."""
        folders = {reading.folder for reading in readings}
        for key in [key for key in self._disks if not key[0] and key[1] not in folders]:
            del self._disks[key]
        for reading in readings:
            self._disk("", reading).add(at, reading)

    def add_of_agent(self, agent_id: str, at: float, readings: Iterable[DiskReading]) -> None:
        """Add the readings of an agent on another computer."""
        for reading in readings:
            self._disk(agent_id, reading).add(at, reading)

    def _disk(self, agent_id: str, reading: DiskReading) -> _Disk:
        return self._disks.setdefault(
            (agent_id, reading.folder), _Disk(reading=reading, agent_id=agent_id)
        )

    def set_writes(self, writes: Mapping[str, Mapping[int, int]]) -> None:
        """Set the bytes that experiments have written in the last ten minutes, by folder here."""
        self._writes = {("", folder): dict(by) for folder, by in writes.items()}

    def is_full(self, folder: str) -> bool:
        """Return whether writers wait for space on the disk of this folder on this computer."""
        disk = self._disks.get(("", folder))
        return disk is not None and disk.is_full

    def statuses(self, now: float) -> list[DiskStatus]:
        """Return all disks, this computer's first."""
        return [
            disk.status(self._writes.get(key, {}), is_forecast=self._is_forecast)
            for key, disk in sorted(self._disks.items())
            if not key[0] or now - disk.seen_at < _FORGET_S
        ]

    def warnings(self, now: float) -> list[DiskStatus]:
        """Return the disks that are full, or will soon be full."""
        return [status for status in self.statuses(now) if status.state != "ok"]


def disks_of(rooms: Mapping[str, Room | None]) -> list[DiskReading]:
    """Return the disks of folders on this computer: each disk once, named by its first folder.

    Disks that do not report their size are left out.
    """
    found: dict[int, DiskReading] = {}
    for folder, room in rooms.items():
        if room is not None and room.total_bytes and room.disk not in found:
            found[room.disk] = DiskReading(
                folder=folder,
                total_bytes=room.total_bytes,
                free_bytes=room.free_bytes,
                free_files=room.free_files,
                is_full=room.is_short(),
            )
    return list(found.values())


def recent_writes(checkpoints: Iterable[CheckpointView], now: float) -> dict[int, int]:
    """Return the bytes of checkpoints saved in the last ten minutes, by experiment."""
    writes: dict[int, int] = {}
    for one in checkpoints:
        if one.created_at > now - WINDOW_S and one.state == "COMPLETED":
            writes[one.experiment_id] = writes.get(one.experiment_id, 0) + one.size_bytes
    return writes
