"""The processes of others on our devices: notebook kernels, scripts of colleagues.

What is listed for a device:

    a process that computes                        unless it is ours: a rank, or a child of one
    a process that only draws (a desktop)          if it has more than 500 MiB
    a pid that does not exist here, or is 0        as "unknown process": in a container we see
                                                   other pids than the driver does
    more than 1 GiB in use without a process       as "unknown process"

The last two may be our own ranks, or a process that is ending. So they are listed only where no
gang of ours is or was in the last seconds, and only if two looks in a row find them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass

from det_jupyter.agent.devices.driver import DriverError
from det_jupyter.agent.devices.identify import UNKNOWN
from det_jupyter.agent.devices.nvml import DeviceUse, ProcessUse
from det_jupyter.contract.messages import DeviceProcess, SlotView

logger = logging.getLogger(__name__)

_DRAWING_BYTES = 500 << 20  # a process that only draws, with less than this, is a desktop
_UNCLAIMED_BYTES = 1 << 30
_AFTERMATH_S = 5.0  # for so long after its end a gang may still be visible
_IDLE_S = 10.0  # a shorter pause does not make a process idle
_SERVICES = ("nvidia-cuda-mps-server",)  # the processes that they serve are listed themselves

Processes = Mapping[int, Sequence[DeviceProcess]]  # by slot id
Identify = Callable[[ProcessUse, float], DeviceProcess | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """One look at one device; `suspects` are those of the last look, by device and pid."""

    device: int
    use: DeviceUse
    now: float
    suspects: Set[tuple[int, int]]


class Occupancy:
    """Finds the processes of others on real devices.

    Args:
        identify: Describes a process; None if it is not visible here.
        is_own: Whether a pid is a rank of ours, or below one.
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
        self._ours_until: dict[int, float] = {}  # by device: unknown use counts as ours until then
        self._own: set[int] = set()  # of the last look: they may have ended since
        self._used_at: dict[tuple[int, int], float] = {}  # by device and pid: its last computation
        self._suspects: set[tuple[int, int]] = set()  # device and pid, of the last look
        self._failing: set[int] = set()  # devices whose failure was logged

    def look(self, now: float, held: Collection[SlotView]) -> Processes:
        """See Look (watch.py)."""
        in_use = (slot.index for slot in held if slot.kind == "cuda")
        self._ours_until |= dict.fromkeys(in_use, now + _AFTERMATH_S)
        uses = {slot.id: use for slot in self._slots if (use := self._use_of(slot))}
        pids = {process.pid for use in uses.values() for process in use.processes}
        self._own = {pid for pid in pids if pid in self._own or self._is_own(pid)}
        suspects, self._suspects = self._suspects, set()
        for slot in self._slots:
            if use := uses.get(slot.id):  # else what the last look found stays
                look = _Look(device=slot.index, use=use, now=now, suspects=suspects)
                found = self._processes(look) + self._unclaimed(look)
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

    def _processes(self, look: _Look) -> list[DeviceProcess]:
        found = []
        for process in look.use.processes:
            if process.pid in self._own or _only_draws(process):
                continue
            who = self._identify(process, look.now)
            if who is None and self._is_confirmed(look, process.pid):
                who = _unknown(process.pid, process.memory_bytes)
            if who is not None and not who.command.startswith(_SERVICES):
                idle_since = self._idle_since(look, process.pid)
                found.append(who.model_copy(update={"idle_since": idle_since}))
        return found

    def _unclaimed(self, look: _Look) -> list[DeviceProcess]:
        processes = look.use.processes
        if any(process.is_compute for process in processes):
            return []
        unclaimed = look.use.used_bytes - sum(process.memory_bytes for process in processes)
        if unclaimed > _UNCLAIMED_BYTES and self._is_confirmed(look, 0):
            return [_unknown(0, unclaimed)]
        return []

    def _is_confirmed(self, look: _Look, pid: int) -> bool:
        """Return whether unknown use is neither ours nor that of an ending process."""
        if look.now < self._ours_until.get(look.device, 0.0):
            return False
        self._suspects.add((look.device, pid))
        return (look.device, pid) in look.suspects

    def _idle_since(self, look: _Look, pid: int) -> float | None:
        busy_pids, now = look.use.busy_pids, look.now
        if busy_pids is None:
            return None
        if pid in busy_pids:
            self._used_at[look.device, pid] = now
        used_at = self._used_at.setdefault(
            (look.device, pid), now
        )  # before the first look: unknown
        return used_at if now - used_at >= _IDLE_S else None


def _only_draws(process: ProcessUse) -> bool:
    return not process.is_compute and process.memory_bytes <= _DRAWING_BYTES


def _unknown(pid: int, memory_bytes: int) -> DeviceProcess:
    return DeviceProcess(pid=pid, command=UNKNOWN, memory_bytes=memory_bytes)


def has_changed(before: Processes, after: Processes) -> bool:
    """Return whether there is news: others, idle or busy, or a tenth more or less memory."""
    if before.keys() != after.keys():
        return True
    return any(_differ(before[slot], after[slot]) for slot in after)


def _differ(before: Sequence[DeviceProcess], after: Sequence[DeviceProcess]) -> bool:
    if len(before) != len(after):
        return True
    return any(
        _essence(old) != _essence(new)
        or abs(new.memory_bytes - old.memory_bytes) > 0.1 * old.memory_bytes
        for old, new in zip(_by_pid(before), _by_pid(after), strict=True)
    )


def _essence(process: DeviceProcess) -> tuple[object, ...]:
    is_idle = process.idle_since is not None
    return (process.pid, process.command, process.kernel_id, process.notebook, is_idle)


def _by_pid(processes: Sequence[DeviceProcess]) -> list[DeviceProcess]:
    return sorted(processes, key=lambda process: process.pid)
