"""How an agent's devices are read, and who waits for a reading; drivers are played."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Collection
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.agent.devices import watch as module
from det_jupyter.agent.devices.health import DeviceHealth
from det_jupyter.agent.devices.kernel_log import KernelLog
from det_jupyter.agent.devices.occupancy import Processes
from det_jupyter.agent.devices.offered_slots import Offer
from det_jupyter.agent.devices.watch import (
    FAKE_DEVICES_VARIABLE,
    Readings,
    WatchPlan,
    is_own,
    real_devices,
    watch,
    watch_plan,
)
from det_jupyter.contract.messages import DeviceFault, DeviceProcess, DevicesSeen, SlotView

GPU = SlotView(id=4, kind="cuda", index=0, name="GPU", uuid="GPU-0")
CPU = SlotView(id=5, kind="cpu", index=0, name="CPU")
STRANGER = DeviceProcess(pid=7, command="python", user="ann", memory_bytes=1)


def test_an_agent_with_gpus_has_its_devices_read(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    monkeypatch.setattr(module, "real_devices", lambda *given: opened.append(given))
    plan = watch_plan(Offer(agent_id="a", slots=[GPU, CPU]), {}, is_first=True)
    assert plan is not None
    assert plan.interval_s == 2.0
    plan.open()
    ((slots, health),) = opened
    assert (slots, health) == ([GPU], plan.health)
    assert watch_plan(Offer(agent_id="a", slots=[CPU]), {}, is_first=True) is None


@pytest.mark.parametrize("is_first", [True, False])
def test_devices_of_a_file_are_those_of_the_first_agent_or_of_the_named_one(
    tmp_path: Path, is_first: bool
) -> None:
    file = tmp_path / "devices.json"
    stranger = STRANGER.model_dump_json()
    fault = DeviceFault(index=3, at=1.0, xid=79)
    file.write_text(f'{{"5": [{stranger}], "a:4": {fault.model_dump_json()}, "9": [], "b:5": []}}')
    offer = Offer(agent_id="a", slots=[GPU, CPU])
    plan = watch_plan(offer, {FAKE_DEVICES_VARIABLE: str(file)}, is_first=is_first)
    assert plan is not None
    read = plan.open()
    assert read(1.0, []) == ({5: [STRANGER]} if is_first else {})
    assert plan.health.lost == {4: fault}
    file.write_text("no JSON")
    assert read(2.0, []) == ({5: [STRANGER]} if is_first else {})
    file.unlink()
    assert read(3.0, []) == {}
    assert plan.health.lost == {}


def test_a_reading_of_the_driver_checks_the_devices_and_finds_who_uses_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[Any] = []
    nvml = SimpleNamespace(read="read", check=lambda *given: done.append(("check", given)))
    health = DeviceHealth([GPU])

    class Occupancy:
        def __init__(self, slots: Any, *, probe: Any, identify: Any, is_own: Any) -> None:
            done.append((slots, probe, is_own))
            self._identify = identify

        def read(self, now: float, held: Collection[SlotView]) -> Processes:
            done.append((now, held))
            found = self._identify(SimpleNamespace(pid=7, memory_bytes=1), now)
            return {4: [found]}

    def identify(pid: int, *, memory_bytes: int, notebook_of: Any) -> DeviceProcess:
        assert isinstance(notebook_of, partial)
        assert notebook_of.keywords == {"now": 9.0}
        return STRANGER.model_copy(update={"pid": pid, "memory_bytes": memory_bytes})

    monkeypatch.setattr(module, "open_nvml", lambda: nvml)
    monkeypatch.setattr(module, "Occupancy", Occupancy)
    monkeypatch.setattr(module, "identify", identify)
    read = real_devices([GPU], health)
    assert read(9.0, [CPU]) == {4: [STRANGER]}
    assert done == [([GPU], "read", is_own), ("check", ([GPU], health, 9.0)), (9.0, [CPU])]


def test_a_process_is_ours_if_this_one_has_started_it() -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        assert is_own(child.pid)
        assert not is_own(os.getpid())
        assert not is_own(os.getppid())
        child.kill()
    assert not is_own(child.pid)
    assert not is_own(-1)


def test_who_asks_for_a_reading_waits_for_one_that_begins_after_that() -> None:
    async def act() -> None:
        readings = Readings()
        asking = asyncio.create_task(readings.next(60.0))
        await asyncio.sleep(0)
        readings.done()  # this one had begun before
        await asyncio.sleep(0)
        assert not asking.done()
        await readings.until_asked(60.0)  # returns at once
        readings.done()
        await asking
        await readings.until_asked(0.0)  # nobody has asked since
        await readings.next(0.0)  # a driver that hangs

    asyncio.run(act())


class Times:
    """Steps of the clock, and readings of a device; after the last one the watch is over."""

    def __init__(self, *readings: Any, steps: dict[int, float] | None = None) -> None:
        self.readings, self.steps = list(readings), steps or {}
        self.num_opened = self.num_turns = 0
        self.over = asyncio.Event()
        self.told: list[DevicesSeen] = []

    def step_s(self) -> float:
        self.num_turns += 1
        return self.steps.get(self.num_turns, 0.0)

    def open(self) -> Any:
        self.num_opened += 1
        return self._read

    def _read(self, now: float, held: Collection[SlotView]) -> Processes:
        assert (now, held) == (5.0, [GPU])
        if len(self.readings) == 1:
            self.loop.call_soon_threadsafe(self.over.set)
        found = self.readings.pop(0) if self.readings else {}
        if isinstance(found, Exception):
            raise found
        return found

    def play(self) -> list[DevicesSeen]:
        """Return what is reported."""

        async def act() -> None:
            self.loop = asyncio.get_running_loop()
            plan = WatchPlan(interval_s=0.001, health=DeviceHealth([GPU]), open=self.open)
            steps: Any = self
            watching = asyncio.create_task(
                watch(
                    plan,
                    clock=lambda: 5.0,
                    steps=steps,
                    held=lambda: [GPU],
                    report=self.told.append,
                )
            )
            await self.over.wait()
            await plan.readings.next(60.0)
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

        asyncio.run(act())
        return self.told


def test_changes_of_a_device_are_told_and_its_errors_once_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fails = OSError("no descriptor is free")
    seen = {4: [STRANGER]}
    times = Times({}, {}, seen, fails, fails, seen, OSError("another"), fails, {})
    told = times.play()
    assert [report.processes for report in told] == [{}, seen, {}]
    assert times.num_opened == 1
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == [
        "no descriptor is free", "another", "no descriptor is free",
    ]  # fmt: skip


def test_after_a_step_of_the_clock_all_is_read_and_told_anew() -> None:
    times = Times({}, {}, {}, {}, steps={3: 3600.0})
    assert [report.processes for report in times.play()] == [{}, {}]
    assert times.num_opened == 2


def test_a_device_that_is_lost_while_the_driver_hangs_is_told_at_once(tmp_path: Path) -> None:
    told: list[DevicesSeen] = []
    fault = DeviceFault(index=0, at=5.0, xid=79)
    log = tmp_path / "kmsg"
    log.touch()

    async def act() -> None:
        health = DeviceHealth([GPU], KernelLog(log))
        health.locate(GPU.id, "0:3c:0")
        answers = asyncio.Event()
        loop, num = asyncio.get_running_loop(), 0

        def read(now: float, held: Collection[SlotView]) -> Processes:
            nonlocal num
            num += 1
            if num == 2:
                asyncio.run_coroutine_threadsafe(answers.wait(), loop).result()
            return {}

        plan = WatchPlan(interval_s=0.001, health=health, open=lambda: read)
        watching = asyncio.create_task(
            watch(plan, clock=lambda: 5.0, held=lambda: [GPU], report=told.append)
        )
        while num < 2:
            await asyncio.sleep(0.001)
        log.write_text("6,1,1,-;NVRM: Xid (PCI:0000:3c:00): 79, pid='<unknown>', name=<unknown>\n")
        while len(told) < 2:
            await asyncio.sleep(0.001)
        answers.set()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    asyncio.run(act())
    assert [(seen.at, seen.lost) for seen in told] == [(5.0, {}), (5.0, {4: fault})]
