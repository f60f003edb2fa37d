"""Finds processes that are no ranks of this agent on its devices: kernels, other scripts.

What is listed for a device:

    a process that computes                        unless it is a rank, or a child of one
    a process that only renders (a desktop)        if it has more than 500 MiB
    a pid that does not exist here, or is 0        as "unknown process": pids in a container differ
                                                   from those of the driver
    more than 1 GiB in use without a process       as "unknown process"

The last two may be ranks, or a process that is exiting. So they are listed only on devices where
no gang runs or ran in the last seconds, and only if two readings in a row find them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass

from det_jupyter.agent.devices.identify import UNKNOWN
from det_jupyter.agent.devices.nvml import DeviceUse, ProcessUse
from det_jupyter.contract.host.nvml_driver import DriverError
from det_jupyter.contract.messages import DeviceProcess, SlotView

logger = logging.getLogger(__name__)

_RENDERING_BYTES = 500 << 20  # a process that only renders, with less than this, is a desktop
_UNCLAIMED_BYTES = 1 << 30
_AFTERMATH_S = 5.0  # how long after its end a gang may still be visible
_IDLE_S = 10.0  # a process is idle after a pause of this length
_SERVICES = ("nvidia-cuda-mps-server",)  # their client processes are listed themselves

Processes = Mapping[int, Sequence[DeviceProcess]]  # by slot id
Identify = Callable[[ProcessUse, float], DeviceProcess | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """One reading of one device.

    Args:
        suspects: Device and pid of each unknown process in the last reading.
    """

    device: int
    use: DeviceUse
    now: float
    suspects: Set[tuple[int, int]]


class Occupancy:
    """Finds processes that are no ranks of this agent on its devices.

    Args:
        probe: Reads the use of a slot's device; may raise DriverError.
        identify: Describes a process; returns None if it is not visible here.
        is_own: Returns whether a pid is a rank of this agent, or a descendant of one.
    """

    def __init__(
        self,
        slots: Sequence[SlotView],
        *,
        probe: Callable[[SlotView], DeviceUse],
        identify: Identify,
        is_own: Callable[[int], bool],
    ) -> None:
        self._slots = slots
        self._probe = probe
        self._identify = identify
        self._is_own = is_own
        self._seen: dict[int, list[DeviceProcess]] = {}
        # By device: until when an unknown process may be a rank.
        self._own_until: dict[int, float] = {}
        # Pids of ranks in the last reading, which may have exited since.
        self._own: set[int] = set()
        # By device and pid: when it last computed.
        self._used_at: dict[tuple[int, int], float] = {}
        # Device and pid of the unknown processes in the last reading.
        self._suspects: set[tuple[int, int]] = set()
        self._failing: set[int] = set()  # devices whose failure was logged

    def read(self, now: float, held: Collection[SlotView]) -> Processes:
        """Return the other processes by slot (see ReadDevices in watch.py)."""
        in_use = (slot.index for slot in held if slot.kind == "cuda")
        self._own_until |= dict.fromkeys(in_use, now + _AFTERMATH_S)
        uses = {slot.id: use for slot in self._slots if (use := self._use_of(slot))}
        pids = {process.pid for use in uses.values() for process in use.processes}
        self._own = {pid for pid in pids if pid in self._own or self._is_own(pid)}
        suspects, self._suspects = self._suspects, set()
        for slot in self._slots:
            if use := uses.get(slot.id):  # without a use, the slot keeps its last result
                reading = _Reading(device=slot.index, use=use, now=now, suspects=suspects)
                found = self._processes(reading) + self._unclaimed(reading)
                self._seen[slot.id] = found
                logger.debug("slot=%d %d bytes in use: %s", slot.id, use.used_bytes, found)
        self._used_at = {key: at for key, at in self._used_at.items() if key[1] in pids}
        return {slot: found for slot, found in self._seen.items() if found}

    def _use_of(self, slot: SlotView) -> DeviceUse | None:
        try:
            use = self._probe(slot)
        except DriverError as error:
            if slot.index not in self._failing:
                logger.warning("the processes on a device are not known now: %s", error)
            self._failing.add(slot.index)
            return None
        self._failing.discard(slot.index)
        return use

    def _processes(self, reading: _Reading) -> list[DeviceProcess]:
        found = []
        for process in reading.use.processes:
            is_desktop = not process.is_compute and process.memory_bytes <= _RENDERING_BYTES
            if process.pid in self._own or is_desktop:
                continue
            other = self._identify(process, reading.now)
            if other is None and self._is_confirmed(reading, process.pid):
                other = _unknown(process.pid, process.memory_bytes)
            if other is not None and not other.command.startswith(_SERVICES):
                idle_since = self._idle_since(reading, process.pid)
                found.append(other.model_copy(update={"idle_since": idle_since}))
        return found

    def _unclaimed(self, reading: _Reading) -> list[DeviceProcess]:
        """Return an unknown process if much memory is in use and no process has it."""
        processes = reading.use.processes
        if any(process.is_compute for process in processes):
            return []
        unclaimed = reading.use.used_bytes - sum(process.memory_bytes for process in processes)
        if unclaimed > _UNCLAIMED_BYTES and self._is_confirmed(reading, 0):
            return [_unknown(0, unclaimed)]
        return []

    def _is_confirmed(self, reading: _Reading, pid: int) -> bool:
        """Return whether an unknown process is neither a rank nor one that is exiting."""
        if reading.now < self._own_until.get(reading.device, 0.0):
            return False
        self._suspects.add((reading.device, pid))
        return (reading.device, pid) in reading.suspects

    def _idle_since(self, reading: _Reading, pid: int) -> float | None:
        busy_pids, now = reading.use.busy_pids, reading.now
        if busy_pids is None:
            return None
        if pid in busy_pids:
            self._used_at[reading.device, pid] = now
        # Whether it computed before the first reading is unknown.
        used_at = self._used_at.setdefault((reading.device, pid), now)
        return used_at if now - used_at >= _IDLE_S else None


def _unknown(pid: int, memory_bytes: int) -> DeviceProcess:
    return DeviceProcess(pid=pid, command=UNKNOWN, memory_bytes=memory_bytes)


def has_changed(before: Processes, after: Processes) -> bool:
    """Return whether a change is worth a report.

    That is another process, one that became idle or busy, or a tenth more or less memory.
    """
    if before.keys() != after.keys():
        return True
    if any(len(before[slot]) != len(after[slot]) for slot in after):
        return True
    return any(
        _identity(old) != _identity(new)
        or abs(new.memory_bytes - old.memory_bytes) > 0.1 * old.memory_bytes
        for slot in after
        for old, new in zip(_by_pid(before[slot]), _by_pid(after[slot]), strict=True)
    )


def _identity(process: DeviceProcess) -> tuple[object, ...]:
    is_idle = process.idle_since is not None
    return (process.pid, process.command, process.kernel_id, process.notebook, is_idle)


def _by_pid(processes: Sequence[DeviceProcess]) -> list[DeviceProcess]:
    return sorted(processes, key=lambda process: process.pid)
