"""Looks for other processes on an agent's devices every few seconds, and reports changes.

It looks in another thread, because a driver or a Jupyter server may be slow to answer. To test
without a GPU what the scheduler does about such processes, they can be made up:

    DET_JUPYTER_FAKE_DEVICES=FILE      a JSON file, read again whenever it changes:

    {"0": [{"pid": 4711, "command": "python train.py", "user": "ada", "memory_bytes": 5000000000}],
     "right:3": [{"pid": 4712, "command": "ipykernel", "kernel_id": "3f2a", "idle_since": 1.0}]}

A key is a slot of the (first) agent, or AGENT:SLOT; CPU places count as devices here. Processes
have the fields of `wire.DeviceProcess`, of which `pid` and `command` are required. A missing file
means no processes; one that cannot be read is logged, and the last content stays.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import psutil
from pydantic import TypeAdapter, ValidationError

from det_jupyter.agent.devices.identify import Notebooks, identify
from det_jupyter.agent.devices.nvml import ProcessUse, open_nvml
from det_jupyter.agent.devices.occupancy import Occupancy, Processes, has_changed
from det_jupyter.agent.devices.offered_slots import Offer
from det_jupyter.contract.host.clock_steps import ClockWatch
from det_jupyter.contract.messages import DeviceProcess, DevicesSeen, SlotView

logger = logging.getLogger(__name__)

_LOOK_S = 2.0
_LOOK_AT_FAKES_S = 0.2
T = TypeVar("T")
# Given UTC seconds and the slots of our gangs, returns the processes of others on each device that
# has any. Called from one thread at a time.
Look = Callable[[float, Collection[SlotView]], Processes]

FAKE_DEVICES_VARIABLE = "DET_JUPYTER_FAKE_DEVICES"
_FILE = TypeAdapter(dict[str, list[DeviceProcess]])


class FakeDevices:
    """Devices whose processes are in a file.

    Args:
        is_first: Whether keys without an agent are slots of this one.
    """

    def __init__(self, path: Path, offer: Offer, *, is_first: bool) -> None:
        self._path = path
        keys = {f"{offer.agent_id}:{slot.id}": slot.id for slot in offer.slots}
        if is_first:
            keys |= {str(slot.id): slot.id for slot in offer.slots}
        self._slot_of = keys
        self._text = b""
        self._seen: Processes = {}

    def look(self, now: float, held: Collection[SlotView]) -> Processes:
        """See Look."""
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            text = b"{}"
        if text != self._text:
            self._text = text
            self._read(text)
        return self._seen

    def _read(self, text: bytes) -> None:
        try:
            by_key = _FILE.validate_json(text)
        except ValidationError as error:
            logger.error("%s: %s is ignored: %s", FAKE_DEVICES_VARIABLE, self._path, error)
            return
        slot_of = self._slot_of
        self._seen = {slot_of[key]: who for key, who in by_key.items() if key in slot_of and who}


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPlan:
    """How to look at an agent's devices."""

    every_s: float  # seconds between two looks
    open: Callable[[], Look]  # makes the source, in the thread of the first look


def watch_plan(offer: Offer, environ: Mapping[str, str], *, is_first: bool) -> WatchPlan | None:
    """Return how to look at an agent's devices; None if it has none.

    Args:
        environ: May name a file with made-up processes.
        is_first: Whether it is the first agent of this process.
    """
    if path := environ.get(FAKE_DEVICES_VARIABLE):
        fakes = FakeDevices(Path(path), offer, is_first=is_first)
        return WatchPlan(every_s=_LOOK_AT_FAKES_S, open=lambda: fakes.look)
    devices = [slot for slot in offer.slots if slot.kind == "cuda"]
    if not devices:
        return None
    return WatchPlan(every_s=_LOOK_S, open=partial(real_devices, devices))


def real_devices(slots: list[SlotView]) -> Look:
    """Return a source that reads NVML and this computer's process table.

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

    return Occupancy(slots, probe=open_nvml().look, identify=identified, is_own=is_own).look


def is_own(pid: int) -> bool:
    """Return whether a process is below this one: a rank, or started by a rank."""
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
    """Look until canceled, and report what the first look finds and each change.

    Args:
        plan: What to look at, and how often.
        clock: Returns UTC seconds.
        steps: Reports steps of that clock, after which earlier times mean nothing.
        held: Returns the slots of our gangs.
        report: Gets the reports.
    """
    look: Look | None = None
    reported: Processes | None = None
    complaint = ""
    while True:
        if steps is not None and steps.step_s():
            look = reported = None
        now = clock()
        try:
            if look is None:
                look = await in_thread(plan.open)
            seen = await in_thread(partial(look, now, list(held())))
        except Exception as error:  # the gangs are not affected, and the next look may succeed
            if str(error) != complaint:
                logger.exception(
                    "the processes on the devices are not known; the next look tries again"
                )
            complaint = str(error)
        else:
            if reported is None or has_changed(reported, seen):
                report(DevicesSeen(at=now, processes={slot: [*who] for slot, who in seen.items()}))
                reported = seen
        await asyncio.sleep(plan.every_s)


async def in_thread(function: Callable[[], T]) -> T:
    """Call a function in a thread of its own and return its result.

    Unlike with `asyncio.to_thread`, the process can end while the function hangs. Drivers hang
    when a device falls off its bus.
    """
    outcome: Future[T] = Future()

    def work() -> None:
        outcome.set_running_or_notify_cancel()
        try:
            outcome.set_result(function())
        except Exception as error:
            outcome.set_exception(error)

    threading.Thread(target=work, name="devices", daemon=True).start()
    return await asyncio.wrap_future(outcome)
