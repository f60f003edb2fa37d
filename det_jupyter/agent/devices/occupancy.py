"""Who else uses our devices: notebook kernels with a model in memory, a colleague's script.

What counts as a stranger on a device:

    a process that computes there                   yes, unless it is ours: a rank, or its child
    a process that only draws (a desktop)           if it has more than 500 MiB
    a pid that nobody has here, or none at all      as "unknown process": we see other pids than
                                                    the driver does (a container)
    more than 1 GiB in use, and no process there    as "unknown process", too

The last two hold only where none of our gangs is or just was: it may be ours that we do not see.
And only at two looks in succession: whoever is ending looks like that for a moment.

Not every change is worth telling: see `has_changed`. Knows nothing of the master.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass

from det_jupyter.agent.devices.identify import UNKNOWN
from det_jupyter.agent.devices.nvml import DeviceProbe, DeviceUse, DriverError, ProcessUse
from det_jupyter.wire import DeviceProcess, SlotView

logger = logging.getLogger(__name__)

_DRAWING_BYTES = 500 << 20  # what only draws, with less than this, is a desktop
_UNCLAIMED_BYTES = 1 << 30
_AFTERMATH_S = 5.0  # a gang's processes and memory may be seen that long after its end
_IDLE_S = 10.0  # who has not computed for so long is idle; else each pause would be news
_SERVICES = ("nvidia-cuda-mps-server",)  # they work for processes that are in the list themselves

Processes = Mapping[int, Sequence[DeviceProcess]]  # by slot id
Identify = Callable[[ProcessUse, float], DeviceProcess | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """One look at one device; `suspects` are those of the look before, by device and pid."""

    device: int
    use: DeviceUse
    now: float
    suspects: Set[tuple[int, int]]


class Occupancy:
    """The strangers on real devices.

    Args:
        slots: The devices.
        probe: What the driver says of them.
        identify: Says who has a pid; None: nobody that we can see.
        is_own: Whether a pid is ours, at this moment.
    """

    def __init__(
        self,
        slots: Sequence[SlotView],
        *,
        probe: DeviceProbe,
        identify: Identify,
        is_own: Callable[[int], bool],
    ) -> None:
        self._slots = slots
        self._probe = probe
        self._identify = identify
        self._is_own = is_own
        self._seen: dict[int, list[DeviceProcess]] = {}
        self._ours_until: dict[int, float] = {}  # device -> when what is unclaimed is no more ours
        self._own: set[int] = set()  # at the last look: they may have ended since
        self._used_at: dict[tuple[int, int], float] = {}  # device and pid -> when it computed last
        self._suspects: set[tuple[int, int]] = set()  # device and pid, of the last look
        self._are_told: set[int] = set()  # devices whose failure was logged

    def look(self, now: float, held: Collection[SlotView]) -> Processes:
        """Return the strangers on each device that has any.

        Args:
            now: UTC seconds.
            held: The slots that gangs of ours have now.
        """
        in_use = (slot.index for slot in held if slot.kind == "cuda")
        self._ours_until |= dict.fromkeys(in_use, now + _AFTERMATH_S)
        uses = {slot.id: use for slot in self._slots if (use := self._use_of(slot))}
        pids = {process.pid for use in uses.values() for process in use.processes}
        self._own = {pid for pid in pids if pid in self._own or self._is_own(pid)}
        suspects, self._suspects = self._suspects, set()
        for slot in self._slots:
            if use := uses.get(slot.id):  # else it is as it was before
                look = _Look(device=slot.index, use=use, now=now, suspects=suspects)
                found = self._strangers(look) + self._unclaimed(look)
                self._seen[slot.id] = found
                logger.debug("slot=%d %d bytes in use: %s", slot.id, use.used_bytes, found)
        self._used_at = {key: at for key, at in self._used_at.items() if key[1] in pids}
        return {slot: found for slot, found in self._seen.items() if found}

    def _use_of(self, slot: SlotView) -> DeviceUse | None:
        try:
            use = self._probe.look(slot)
        except DriverError as error:
            if slot.index not in self._are_told:
                logger.warning("who uses a device is not known now: %s", error)
            self._are_told.add(slot.index)
            return None
        self._are_told.discard(slot.index)
        return use

    def _strangers(self, look: _Look) -> list[DeviceProcess]:
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
        """Return whether what nobody seems to be is neither ours nor about to vanish."""
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
        used_at = self._used_at.setdefault((look.device, pid), now)  # nobody knows what was before
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
