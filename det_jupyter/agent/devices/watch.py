"""Reads the other processes on an agent's devices every few seconds, and reports changes.

It reads in another thread, because a driver or a Jupyter server may be slow. To test without a GPU
how the scheduler treats such processes, they can be read from a file:

    DET_JUPYTER_FAKE_DEVICES=FILE      a JSON file, read again whenever it changes:

    {"0": [{"pid": 4711, "command": "python train.py", "user": "ada", "memory_bytes": 5000000000}],
     "right:3": [{"pid": 4712, "command": "ipykernel", "kernel_id": "3f2a", "idle_since": 1.0}]}

A key is a slot of the (first) agent, or AGENT:SLOT; CPU places count as devices here. Processes
have the fields of `DeviceProcess`, of which `pid` and `command` are required. A missing file
means no processes; a file that is not valid is logged, and the last content stays.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
from pydantic import TypeAdapter, ValidationError

from det_jupyter.agent.devices.identify import Notebooks, identify
from det_jupyter.agent.devices.nvml import ProcessUse, open_nvml
from det_jupyter.agent.devices.occupancy import Occupancy, Processes, has_changed
from det_jupyter.agent.devices.offered_slots import Offer
from det_jupyter.contract.host.clock_steps import ClockWatch
from det_jupyter.contract.host.tasks import in_thread
from det_jupyter.contract.messages import DeviceProcess, DevicesSeen, SlotView

logger = logging.getLogger(__name__)

_INTERVAL_S = 2.0
_FAKES_INTERVAL_S = 0.2
# Given UTC seconds and the slots of this process's gangs, returns the other processes on each
# device that has any, by slot. Called by one thread at a time.
ReadDevices = Callable[[float, Collection[SlotView]], Processes]

FAKE_DEVICES_VARIABLE = "DET_JUPYTER_FAKE_DEVICES"
_FILE = TypeAdapter(dict[str, list[DeviceProcess]])


class FakeDevices:
    """Devices whose processes are read from a JSON file (see above).

    Args:
        is_first: Whether keys without an agent are slots of this agent.
    """

    def __init__(self, path: Path, offer: Offer, *, is_first: bool) -> None:
        self._path = path
        keys = {f"{offer.agent_id}:{slot.id}": slot.id for slot in offer.slots}
        if is_first:
            keys |= {str(slot.id): slot.id for slot in offer.slots}
        self._slot_of = keys
        self._text = b""
        self._seen: Processes = {}

    def read(self, now: float, held: Collection[SlotView]) -> Processes:
        """Return the processes of the file by slot (see ReadDevices)."""
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            text = b"{}"
        if text != self._text:
            self._text = text
            self._parse(text)
        return self._seen

    def _parse(self, text: bytes) -> None:
        try:
            by_key = _FILE.validate_json(text)
        except ValidationError as error:
            logger.error("%s: %s is ignored: %s", FAKE_DEVICES_VARIABLE, self._path, error)
            return
        slot_of = self._slot_of
        self._seen = {
            slot_of[key]: processes
            for key, processes in by_key.items()
            if key in slot_of and processes
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPlan:
    """How to read an agent's devices."""

    interval_s: float
    open: Callable[[], ReadDevices]  # called in the thread of the first reading


def watch_plan(offer: Offer, environ: Mapping[str, str], *, is_first: bool) -> WatchPlan | None:
    """Return how to read an agent's devices; None if it has none.

    Args:
        environ: May contain DET_JUPYTER_FAKE_DEVICES.
        is_first: Whether it is the first agent of this process.
    """
    if path := environ.get(FAKE_DEVICES_VARIABLE):
        fakes = FakeDevices(Path(path), offer, is_first=is_first)
        return WatchPlan(interval_s=_FAKES_INTERVAL_S, open=lambda: fakes.read)
    devices = [slot for slot in offer.slots if slot.kind == "cuda"]
    if not devices:
        return None
    return WatchPlan(interval_s=_INTERVAL_S, open=partial(real_devices, devices))


def real_devices(slots: list[SlotView]) -> ReadDevices:
    """Return a function that reads NVML and this computer's process table.

    Raises:
        DriverError: NVML does not work.
    """
    notebooks = Notebooks()

    def identified(process: ProcessUse, now: float) -> DeviceProcess | None:
        return identify(
            process.pid,
            memory_bytes=process.memory_bytes,
            notebook_of=partial(notebooks.notebook_of, now=now),
        )

    return Occupancy(slots, probe=open_nvml().read, identify=identified, is_own=is_own).read


def is_own(pid: int) -> bool:
    """Return whether a process is a descendant of this one: a rank, or started by a rank."""
    try:
        return any(parent.pid == os.getpid() for parent in psutil.Process(pid).parents())
    except (psutil.Error, ValueError):
        return False


async def watch(
    plan: WatchPlan,
    *,
    clock: Callable[[], float],
    steps: ClockWatch | None = None,
    held: Callable[[], Collection[SlotView]],
    report: Callable[[DevicesSeen], None],
) -> None:
    """Report the first reading and each change; runs until cancelled.

    Args:
        plan: How to read the devices, and how often.
        clock: Returns UTC seconds.
        steps: Detects steps of that clock, after which earlier times are not valid.
        held: Returns the slots of this process's gangs.
        report: Receives the reports.
    """
    read: ReadDevices | None = None
    reported: Processes | None = None
    last_error = ""
    while True:
        if steps is not None and steps.step_s():
            read = reported = None
        now = clock()
        try:
            if read is None:
                read = await in_thread(plan.open)
            seen = await in_thread(partial(read, now, list(held())))
        except Exception as error:  # gangs are not affected, and the next reading may succeed
            if str(error) != last_error:
                logger.exception(
                    "the processes on the devices are not known; the next look tries again"
                )
            last_error = str(error)
        else:
            if reported is None or has_changed(reported, seen):
                processes = {slot: [*found] for slot, found in seen.items()}
                report(DevicesSeen(at=now, processes=processes))
                reported = seen
        await asyncio.sleep(plan.interval_s)
