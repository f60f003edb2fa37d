"""Tracks which devices of an agent have had errors or are lost. Pure, except for reading the log.

Errors (Xid) come from the kernel's log, where it may be read, and from NVML's events, which any
user gets. A device is lost after certain errors (contract/values/xids.py), or if NVML does not
reach it. When it counts as available again depends on why it was lost:

    NVML did not reach it        when NVML reaches it again
    an error of its memory       when it counts no uncorrected errors; a reset clears them
    any other error              10 minutes later, if NVML reaches it; the next trial will show

but never within 10 s of the error, so that the loss is reported before (watch.py). Any other error
that NVML returns changes nothing.

`note_log` never blocks. Calls of NVML block when a device falls off its bus, so they are made in
another thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import psutil

from det_jupyter.agent.devices.kernel_log import KernelLog
from det_jupyter.agent.devices.xid_log import parse_xids
from det_jupyter.contract.messages import DeviceFault, SlotView
from det_jupyter.contract.values.xids import Fault

_MOST_FAULTS = 256
_SAME_S = 10.0  # the log and NVML report an error at about the same time
_LEAST_S = 10.0
_TRY_AGAIN_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What NVML reports about a device.

    Args:
        is_lost: NVML does not reach it.
        is_reached: NVML reaches it. If neither is true, its state is unknown.
        num_uncorrected: Errors of its memory since the last reset; None: not counted.
        xids: Errors since the last answer.
    """

    is_lost: bool = False
    is_reached: bool = True
    num_uncorrected: int | None = None
    xids: Sequence[int] = ()


class DeviceHealth:
    """The errors of an agent's devices.

    Args:
        slots: The agent's slots.
        log: The kernel's log, read by this object only.
    """

    def __init__(self, slots: Sequence[SlotView], log: KernelLog | None = None) -> None:
        self._slots = {slot.id: slot for slot in slots}
        self._log = log
        self._slot_at: dict[str, int] = {}  # by PCI address
        self._faults: dict[int, deque[DeviceFault]] = {
            slot.id: deque(maxlen=_MOST_FAULTS) for slot in slots
        }
        self._lost: dict[int, DeviceFault] = {}
        self._unreached: set[int] = set()

    @property
    def lost(self) -> dict[int, DeviceFault]:
        """The error of each lost slot, by slot id."""
        return dict(self._lost)

    def locate(self, slot_id: int, pci: str) -> None:
        """Set the PCI address of a slot's device, as `pci_address` returns it."""
        self._slot_at[pci] = slot_id

    def note_log(self, now: float) -> None:
        """Read the kernel's log; `now` is UTC seconds."""
        for message in parse_xids(self._log.read()) if self._log is not None else ():
            if (slot_id := self._slot_at.get(message.pci)) is not None:
                self._add(slot_id, now, message.xid, message.pid)

    def note_answer(self, slot_id: int, answer: Answer, now: float) -> None:
        """Store what NVML reports about a slot's device."""
        for xid in answer.xids:
            self._add(slot_id, now, xid)
        if answer.is_lost:
            self._unreached.add(slot_id)
            self._add(slot_id, now, None)
            return
        lost = self._lost.get(slot_id)
        if lost is None or answer.xids or not answer.is_reached:
            return
        since_s = abs(now - lost.at)  # the clock may have been set back
        if since_s < _LEAST_S:
            return
        is_clean = lost.fault is Fault.UNCORRECTED and answer.num_uncorrected == 0
        if slot_id in self._unreached or is_clean or since_s >= _TRY_AGAIN_S:
            self._unreached.discard(slot_id)
            del self._lost[slot_id]

    def set_lost(self, lost: dict[int, DeviceFault]) -> None:
        """Set which devices are lost, by slot id; for simulated devices."""
        for slot_id, fault in lost.items():
            if self._lost.get(slot_id) != fault:
                self._faults[slot_id].append(fault)
        self._lost = lost

    def faults_of(
        self, slot_ids: Collection[int], since: float, pids: Iterable[int]
    ) -> dict[int, DeviceFault]:
        """Return for each slot the device error that best explains a crash there, by slot id.

        An error of another program on the same device explains nothing, unless the device is lost;
        nor does the loss of a device that is back.

        Args:
            slot_ids: The slots of a gang.
            since: When the gang was started, UTC seconds.
            pids: Pids of the gang's ranks. In a container the driver reports different ones.
        """
        ours = {*pids}
        found: dict[int, DeviceFault] = {}
        for slot_id in slot_ids:
            is_lost = slot_id in self._lost
            faults = [
                fault
                for fault in list(self._faults.get(slot_id, ()))  # another thread may add some
                if fault.at >= since
                and (
                    is_lost
                    if fault.is_lost
                    else fault.pid is None or fault.pid in ours or not psutil.pid_exists(fault.pid)
                )
            ]
            if faults:  # of equal ones, the first caused the others
                found[slot_id] = max(faults, key=lambda fault: fault.fault)
        return found

    def _add(self, slot_id: int, now: float, xid: int | None, pid: int | None = None) -> None:
        fault = DeviceFault(index=self._slots[slot_id].index, at=now, xid=xid, pid=pid)
        if fault.is_lost:
            self._lost.setdefault(slot_id, fault)
        if xid is None and self._lost[slot_id] is not fault:
            return  # it is known to be lost
        known = next((one for one in reversed(self._faults[slot_id]) if one.xid == xid), None)
        if known is None or now - known.at > _SAME_S:
            self._faults[slot_id].append(fault)
