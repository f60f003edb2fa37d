"""An agent tells its master who else uses the devices."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection
from itertools import chain, repeat
from pathlib import Path

import pytest

from det_jupyter.agent.devices.health import DeviceHealth
from det_jupyter.agent.devices.identify import Notebooks, identify
from det_jupyter.agent.devices.occupancy import Processes
from det_jupyter.agent.devices.offered_slots import Offer
from det_jupyter.agent.devices.watch import FakeDevices, WatchPlan, is_own, watch
from det_jupyter.contract.host.clock_steps import ClockWatch
from det_jupyter.contract.messages import DeviceProcess, DevicesSeen, SlotView
from tests.integration.agent_support import FakeMaster, agent_with_master
from tests.processes import wait_until

ADA = {"pid": 4711, "command": "python train.py", "user": "ada", "memory_bytes": 5_000_000_000}
SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(3600)"]


def seen_by(master: FakeMaster, agent_id: str, number: int) -> dict[int, list[DeviceProcess]]:
    """Wait for that report of an agent, counted from 0, and return what it says."""
    told = master.devices.setdefault(agent_id, [])
    wait_until(lambda: len(told) > number, f"report {number} of {agent_id}")
    return told[number].processes


def put(file: Path, text: str) -> None:
    """Replace a file at once: the agent looks at it whenever it likes."""
    scratch = file.with_suffix(".new")
    scratch.write_text(text)
    scratch.rename(file)


@pytest.mark.usefixtures("light_torch")
def test_master_hears_of_strangers_when_they_come_and_go_and_when_it_is_new(
    tmp_path: Path,
) -> None:
    file = tmp_path / "devices.json"
    variables = {"DET_JUPYTER_FAKE_DEVICES": str(file), "DET_JUPYTER_CPU_SLOTS": "2"}
    here = socket.gethostname()
    with agent_with_master(tmp_path / "home", variables) as (agent, master):
        assert seen_by(master, here, 0) == {}
        put(file, json.dumps({"1": [ADA], "7": [ADA]}))
        assert seen_by(master, here, 1) == {1: [DeviceProcess.model_validate(ADA)]}
        put(file, json.dumps({"1": [ADA | {"memory_bytes": 5_400_000_000}]}))
        file_was_read = time.monotonic() + 0.6
        wait_until(lambda: time.monotonic() > file_was_read, "the file was looked at")
        assert len(master.devices[here]) == 2
        master.stop()
        master.start()
        assert seen_by(master, here, 2) == {1: [DeviceProcess.model_validate(ADA)]}
        put(file, "{")
        wait_until(
            lambda: "DET_JUPYTER_FAKE_DEVICES: " in agent.log.read_text(), "the mistake is told"
        )
        put(file, "{}")
        assert seen_by(master, here, 3) == {}


@pytest.mark.usefixtures("light_torch")
def test_each_simulated_agent_has_strangers_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "devices.json"
    put(file, json.dumps({"0": [ADA], "right:1": [ADA | {"pid": 4712, "kernel_id": "a"}]}))
    options = ["--agent", "left=cpu:2", "--agent", "right=cpu:2"]
    variables = {"DET_JUPYTER_FAKE_DEVICES": str(file)}
    with agent_with_master(tmp_path / "home", variables, options, num_agents=2) as (_, master):
        left, right = seen_by(master, "left", 0), seen_by(master, "right", 0)
    assert {slot: [who.pid for who in seen] for slot, seen in left.items()} == {0: [4711]}
    assert {slot: [who.pid for who in seen] for slot, seen in right.items()} == {1: [4712]}
    assert right[1][0].kernel_id == "a"


@pytest.mark.usefixtures("light_torch")
def test_agent_without_devices_says_nothing_of_them(tmp_path: Path) -> None:
    with agent_with_master(tmp_path / "home", {"DET_JUPYTER_CPU_SLOTS": "1"}) as (_, master):
        assert master.devices == {}


def test_file_that_says_nothing_sensible_leaves_things_as_they_were(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "devices.json"
    offer = Offer(agent_id="here", slots=[SlotView(id=0, kind="cpu", index=0, name="CPU")])
    fakes = FakeDevices(file, offer, DeviceHealth(offer.slots), is_first=True)
    assert fakes.read(0.0, []) == {}
    put(file, json.dumps({"here:0": [ADA], "there:0": [ADA]}))
    before = fakes.read(1.0, [])
    assert [who.user for who in before[0]] == ["ada"]
    put(file, json.dumps({"0": [{"pid": "many"}]}))
    assert fakes.read(2.0, []) == fakes.read(3.0, []) == before
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1
    file.unlink()
    assert fakes.read(4.0, []) == {}


def test_ours_is_what_we_and_our_children_have_started() -> None:
    child = subprocess.Popen(["sh", "-c", "sleep 3600 & echo $!; wait"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    grandchild = int(child.stdout.readline())
    try:
        assert is_own(child.pid)
        assert is_own(grandchild)
        assert not is_own(os.getppid())
        assert not is_own(0)
    finally:
        os.kill(grandchild, 9)
        child.kill()
        child.communicate()


class Source:
    """Says what it is given to say: strangers, or what goes wrong."""

    def __init__(self, *answers: Processes | Exception | threading.Event) -> None:
        self.answers = iter(answers)

    def read(self, now: float, held: Collection[SlotView]) -> Processes:
        answer = next(self.answers, None)
        match answer:
            case None:
                return {}
            case Exception():
                raise answer
            case threading.Event():
                answer.wait()
                return {}
            case _:
                return answer


def watched(
    *sources: Source,
    until: Callable[[list[DevicesSeen]], bool],
    steps: ClockWatch | None = None,
) -> list[DevicesSeen]:
    """Watch until there was told what is awaited; return all that was."""
    told: list[DevicesSeen] = []
    opened = iter(sources)

    async def run() -> None:
        plan = WatchPlan(interval_s=0.01, health=DeviceHealth([]), open=lambda: next(opened).read)
        watching = watch(plan, clock=lambda: 1.0, steps=steps, held=lambda: [], report=told.append)
        task = asyncio.create_task(watching)
        while not until(told):
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    return told


def test_first_sight_and_news_are_told(caplog: pytest.LogCaptureFixture) -> None:
    somebody = {0: [DeviceProcess.model_validate(ADA)]}
    trouble = OSError("no descriptor is free")
    source = Source({}, somebody, trouble, trouble, somebody, {})
    told = watched(source, until=lambda told: len(told) == 3)
    assert [seen.processes for seen in told] == [{}, somebody, {}]
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.exc_info is not None


def test_what_was_noted_before_the_clock_was_set_is_forgotten() -> None:
    """A moment until which nothing counts, say, would be hours away after a step back."""
    somebody = {0: [DeviceProcess.model_validate(ADA)]}
    walls = chain([1000.0, 1000.0, 1000.0], repeat(1000.0 - 3 * 3600))
    steps = ClockWatch(lambda: next(walls), lambda: 0.0)
    told = watched(
        Source({}, {}), Source(somebody), until=lambda told: len(told) >= 2, steps=steps
    )
    assert [seen.processes for seen in told[:2]] == [{}, somebody]


def test_driver_that_hangs_keeps_nobody_from_leaving() -> None:
    hang = threading.Event()
    try:
        assert len(watched(Source({}, hang), until=lambda told: len(told) == 1)) == 1
    finally:
        hang.set()


def test_notebook_is_not_known_where_no_server_tells_it(tmp_path: Path) -> None:
    (tmp_path / "jpserver-1.json").write_text("not JSON")
    (tmp_path / "jpserver-2.json").write_text("{}")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        info = {"url": url, "token": "t", "pid": os.getpid(), "root_dir": "/"}
        (tmp_path / "jpserver-3.json").write_text(json.dumps(info))
        assert Notebooks(tmp_path).notebook_of("a-kernel", os.getpid(), 0.0) is None


def test_process_that_is_gone_is_nobody() -> None:
    process = subprocess.Popen(SLEEP)
    process.kill()
    process.wait()
    assert identify(process.pid, memory_bytes=0, notebook_of=lambda kernel, pid: None) is None
