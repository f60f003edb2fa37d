"""Looks again and again who else uses an agent's devices, and tells what is news.

The looking is done in another thread: a driver takes its time, and a Jupyter server too.
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
from typing import Protocol, TypeVar

import psutil

from det_jupyter.agent.devices.fake import FAKE_DEVICES_VARIABLE, FakeDevices
from det_jupyter.agent.devices.identify import identify
from det_jupyter.agent.devices.notebooks import Notebooks
from det_jupyter.agent.devices.nvml import ProcessUse, open_nvml
from det_jupyter.agent.devices.occupancy import Occupancy, Processes, has_changed
from det_jupyter.agent.devices.offers import Offer
from det_jupyter.system.clock import ClockWatch
from det_jupyter.wire import DeviceProcess, DevicesSeen, SlotView

logger = logging.getLogger(__name__)

_LOOK_S = 2.0
_LOOK_AT_FAKES_S = 0.2
T = TypeVar("T")


class DeviceSource(Protocol):
    """Tells who else uses an agent's devices. Called from one thread at a time."""

    def look(self, now: float, held: Collection[SlotView]) -> Processes:
        """Return the strangers on each device that has any.

        Args:
            now: UTC seconds.
            held: The slots that gangs of ours have now.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """How to look at an agent's devices.

    Args:
        every_s: How often.
        open_source: Makes what is looked at, in the thread of the first look.
    """

    every_s: float
    open_source: Callable[[], DeviceSource]


def outlook_of(offer: Offer, environ: Mapping[str, str], *, is_first: bool) -> Outlook | None:
    """Return how to look at an agent's devices; None when there is nothing to see.

    Args:
        offer: The agent.
        environ: May name a file that says what is seen.
        is_first: Of the agents of this process.
    """
    if path := environ.get(FAKE_DEVICES_VARIABLE):
        fakes = FakeDevices(Path(path), offer, is_first=is_first)
        return Outlook(every_s=_LOOK_AT_FAKES_S, open_source=lambda: fakes)
    devices = [slot for slot in offer.slots if slot.kind == "cuda"]
    if not devices:
        return None
    return Outlook(every_s=_LOOK_S, open_source=partial(real_devices, devices))


def real_devices(slots: list[SlotView]) -> DeviceSource:
    """Return what NVML and the computer's process table say of these devices.

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

    return Occupancy(slots, probe=open_nvml(), identify=identified, is_own=is_own)


def is_own(pid: int) -> bool:
    """Return whether a process is below us: a rank, or what a rank has started."""
    try:
        return any(parent.pid == os.getpid() for parent in psutil.Process(pid).parents())
    except (psutil.Error, ValueError):
        return False


async def watch(
    outlook: Outlook,
    *,
    clock: Callable[[], float],
    steps: ClockWatch | None = None,
    held: Callable[[], Collection[SlotView]],
    tell: Callable[[DevicesSeen], None],
) -> None:
    """Look for ever; tell the first sight and whatever is news.

    Args:
        outlook: At what, and how often.
        clock: Says the time, UTC seconds.
        steps: Says whether it was set: times that were noted before then mean nothing any more.
        held: Says which slots gangs of ours have.
        tell: Takes what there is to tell.
    """
    source: DeviceSource | None = None
    told: Processes | None = None
    complaint = ""
    while True:
        if steps is not None and steps.step_s():
            source = told = None
        now = clock()
        try:
            if source is None:
                source = await apart(outlook.open_source)
            seen = await apart(partial(source.look, now, list(held())))
        except Exception as error:  # gangs go on, and the next look may go better
            if str(error) != complaint:
                logger.exception("who else uses the devices is not known; it is looked again")
            complaint = str(error)
        else:
            if told is None or has_changed(told, seen):
                tell(DevicesSeen(at=now, processes={slot: [*who] for slot, who in seen.items()}))
                told = seen
        await asyncio.sleep(outlook.every_s)


async def apart(function: Callable[[], T]) -> T:
    """Call it in a thread of its own and return what it returns.

    Unlike with `asyncio.to_thread`, one that hangs keeps nobody from leaving. Drivers do hang,
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
