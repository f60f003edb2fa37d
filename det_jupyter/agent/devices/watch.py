"""Reads the state of an agent's devices every few seconds, and reports changes.

The state is which devices are lost, and which processes of others use them.

It is read in another thread, because a driver or a Jupyter server may be slow. For tests without a
GPU, the processes and lost devices can be read from a file:

    DET_JUPYTER_FAKE_DEVICES=FILE      a JSON file, read again whenever it changes:

    {"0": [{"pid": 4711, "command": "python train.py", "user": "ada", "memory_bytes": 5000000000}],
     "right:3": [{"pid": 4712, "command": "ipykernel", "kernel_id": "3f2a", "idle_since": 1.0}]}

A key is a slot of the (first) agent, or AGENT:SLOT; CPU places count as devices here. Processes
have the fields of `DeviceProcess`, of which `pid` and `command` are required. Instead of a list,
a slot may have a `DeviceFault`, such as {"index": 3, "at": 1.0, "xid": 79}: the device is lost. A
missing file means no processes; a file that is not valid is logged, and the last content stays.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil
from pydantic import TypeAdapter, ValidationError

from det_jupyter.agent.devices.health import DeviceHealth
from det_jupyter.agent.devices.identify import Notebooks, identify
from det_jupyter.agent.devices.kernel_log import KernelLog
from det_jupyter.agent.devices.nvml import ProcessUse, open_nvml
from det_jupyter.agent.devices.occupancy import Occupancy, Processes, has_changed
from det_jupyter.agent.devices.offered_slots import Offer
from det_jupyter.contract.host.clock_steps import ClockWatch
from det_jupyter.contract.host.tasks import in_thread
from det_jupyter.contract.messages import DeviceFault, DeviceProcess, DevicesSeen, SlotView

logger = logging.getLogger(__name__)

_INTERVAL_S = 2.0
_FAKES_INTERVAL_S = 0.2
_READING_S = 1.0  # a driver may hang when a device has failed
# Given UTC seconds and the slots of this process's gangs, returns the other processes on each
# device that has any, by slot, and stores errors of devices in the agent's DeviceHealth. Called by
# one thread at a time.
ReadDevices = Callable[[float, Collection[SlotView]], Processes]

FAKE_DEVICES_VARIABLE = "DET_JUPYTER_FAKE_DEVICES"
_FILE = TypeAdapter(dict[str, list[DeviceProcess] | DeviceFault])


class FakeDevices:
    """Devices whose processes are read from a JSON file (see above).

    Args:
        health: Where lost devices are stored.
        is_first: Whether keys without an agent are slots of this agent.
    """

    def __init__(self, path: Path, offer: Offer, health: DeviceHealth, *, is_first: bool) -> None:
        self._path = path
        self._health = health
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
        found = {self._slot_of[key]: each for key, each in by_key.items() if key in self._slot_of}
        self._seen = {
            slot: each for slot, each in found.items() if each and isinstance(each, list)
        }
        self._health.set_lost(
            {slot: each for slot, each in found.items() if isinstance(each, DeviceFault)}
        )


class Readings:
    """Lets a task wait for a reading of the devices that begins now."""

    def __init__(self) -> None:
        self._asked, self._read = asyncio.Event(), asyncio.Event()

    async def next(self, timeout_s: float) -> None:
        """Wait for the end of a reading that begins from now on, for at most `timeout_s`."""
        self._read.clear()
        self._asked.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._read.wait()

    async def until_asked(self, timeout_s: float) -> None:
        """Wait until a task calls `next`, for at most `timeout_s`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._asked.wait()
        self._asked.clear()

    def done(self) -> None:
        """Record that a reading has ended; it does not count for `next` calls made during it."""
        if not self._asked.is_set():
            self._read.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPlan:
    """How to read an agent's devices."""

    interval_s: float
    health: DeviceHealth
    readings: Readings = field(default_factory=Readings)
    open: Callable[[], ReadDevices]  # called in the thread of the first reading

    async def faults_of(
        self, slot_ids: Collection[int], since: float, pids: Iterable[int]
    ) -> dict[int, DeviceFault]:
        """Wait for a new reading, and return what `DeviceHealth.faults_of` does."""
        await self.readings.next(_READING_S)
        self.health.note_log(time.time())
        return self.health.faults_of(slot_ids, since, pids)


def watch_plan(offer: Offer, environ: Mapping[str, str], *, is_first: bool) -> WatchPlan | None:
    """Return how to read an agent's devices; None if it has none.

    Args:
        environ: May contain DET_JUPYTER_FAKE_DEVICES.
        is_first: Whether it is the first agent of this process.
    """
    if path := environ.get(FAKE_DEVICES_VARIABLE):
        health = DeviceHealth(offer.slots)
        fakes = FakeDevices(Path(path), offer, health, is_first=is_first)
        return WatchPlan(interval_s=_FAKES_INTERVAL_S, health=health, open=lambda: fakes.read)
    devices = [slot for slot in offer.slots if slot.kind == "cuda"]
    if not devices:
        return None
    health = DeviceHealth(devices, KernelLog())
    return WatchPlan(
        interval_s=_INTERVAL_S, health=health, open=partial(real_devices, devices, health)
    )


def real_devices(slots: list[SlotView], health: DeviceHealth) -> ReadDevices:
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

    nvml = open_nvml()
    occupancy = Occupancy(slots, probe=nvml.read, identify=identified, is_own=is_own)

    def read(now: float, held: Collection[SlotView]) -> Processes:
        nvml.check(slots, health, now)
        return occupancy.read(now, held)

    return read


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
    reported: DevicesSeen | None = None
    seen: Processes = {}
    last_error = ""

    def report_changes() -> None:
        nonlocal reported
        plan.health.note_log(clock())
        found = DevicesSeen(
            at=clock(),
            processes={slot: [*found] for slot, found in seen.items()},
            lost=plan.health.lost,
        )
        is_news = reported is None or reported.lost != found.lost
        if is_news or has_changed(reported.processes if reported else {}, found.processes):
            report(found)
            reported = found

    while True:
        if steps is not None and steps.step_s():
            read = reported = None
        now = clock()
        try:
            if read is None:
                read = await in_thread(plan.open)
            reading = asyncio.ensure_future(in_thread(partial(read, now, list(held()))))
            # NVML may hang for long when a device falls off its bus; the kernel's log reports it.
            while not (await asyncio.wait({reading}, timeout=plan.interval_s))[0]:
                if reported is not None:
                    report_changes()
            seen = reading.result()
        except Exception as error:  # gangs are not affected, and the next reading may succeed
            if str(error) != last_error:
                logger.exception(
                    "the processes on the devices are not known; the next look tries again"
                )
            last_error = str(error)
        else:
            report_changes()
        plan.readings.done()
        await plan.readings.until_asked(plan.interval_s)
