"""The process that reads GPUs is ended when the driver hangs; processes of ranks come and go."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import psutil
import pytest

from det_jupyter.agent.runs.active_run import LivingGang
from det_jupyter.agent.runs.runner import Runner
from det_jupyter.agent.sampler import sampler as sampler_module
from det_jupyter.agent.sampler.box import SampleBox
from det_jupyter.agent.sampler.gpu_watch import HANGS, GpuSample, GpuWatch
from det_jupyter.agent.sampler.host_usage import HostReader
from det_jupyter.agent.sampler.rank_tree import RankTree
from det_jupyter.agent.sampler.readings import Reading
from det_jupyter.agent.sampler.sampler import HANGS as HANGS_IN_KERNEL
from det_jupyter.agent.sampler.sampler import NOT_LISTED, SampledAgent, Sampler
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.nvml_driver import FAKE_NVML_VARIABLE
from det_jupyter.contract.messages import SlotView, SystemSample, SystemSampled
from tests.benchmarks.sampler_cost import StandInRunner
from tests.fake_nvml import SHAPE_VARIABLE
from tests.integration.agent_support import make_plan, run_of
from tests.processes import wait_until
from tests.waiting import until

Taken = list[GpuSample | str]
WORKER = [sys.executable, "-S", "-c", "import time; time.sleep(3600)"]
RANK = """
import os, sys, threading, time
def work():
    if os.fork() == 0:
        os.write(1, b".")
        time.sleep(3600)
work()
thread = threading.Thread(target=work)
thread.start()
time.sleep(3600)
"""


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    paths.data_dir().mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv(FAKE_NVML_VARIABLE, "tests.fake_nvml")


async def watch_until(enough: Callable[[Taken], bool], interval_s: float = 0.05) -> Taken:
    """Watch a GPU until this is true of what was taken; nothing else of the loop may wait."""
    taken: Taken = []
    watch = GpuWatch(["GPU-0"], take=taken.append, start_s=60.0, silence_s=1.0)
    watch.start(interval_s)
    longest_s = 0.0
    while not enough(taken):
        began = time.monotonic()
        await asyncio.sleep(0.01)
        longest_s = max(longest_s, time.monotonic() - began)
    assert longest_s < 20.0
    watch.stop()
    await ended()
    return taken


async def ended() -> None:
    """Wait until the process that reads GPUs has ended, and its pipes are closed."""
    if others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)
    await asyncio.sleep(0.1)
    assert not readers()


def readers() -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process().children()
        if child.status() != psutil.STATUS_ZOMBIE and "gpu_process" in " ".join(child.cmdline())
    ]


def reasons(taken: Taken) -> list[str]:
    return [what for what in taken if isinstance(what, str)]


def test_a_driver_that_hangs_is_killed_said_and_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(SHAPE_VARIABLE, "hangs")
    taken = asyncio.run(watch_until(lambda taken: len(taken) > 4))
    kinds = [type(what) for what in taken]
    assert kinds[:3] == [GpuSample, GpuSample, str]
    assert set(reasons(taken)) == {HANGS}
    assert kinds.count(GpuSample) > 2  # of the process that was started after it


def test_a_driver_that_crashes_ends_its_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SHAPE_VARIABLE, "crashes")
    taken = asyncio.run(watch_until(lambda taken: bool(reasons(taken))))
    assert reasons(taken) == [
        f"the process that reads the GPUs ended with exit code {-signal.SIGABRT}"
    ]


def test_without_a_driver_the_reason_is_nvml_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SHAPE_VARIABLE, "none")
    taken = asyncio.run(watch_until(lambda taken: bool(taken)))
    assert taken == ["NVML does not work: NVMLError: Driver Not Loaded"]


def test_a_shorter_interval_holds_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SHAPE_VARIABLE, "1")

    async def count() -> None:
        taken: Taken = []
        watch = GpuWatch(["GPU-0"], take=taken.append)
        watch.start(600.0)
        while not taken:
            await asyncio.sleep(0.01)
        watch.start(0.05)
        while len(taken) < 10:
            await asyncio.sleep(0.01)
        watch.stop()
        await ended()

    asyncio.run(count())


def test_the_first_sample_is_not_taken_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostReader, "read", lambda *_: Reading({"memory_free": 1.0}))
    gang = LivingGang(run_of(make_plan("1.1.1", [], sampling_interval_s=60)), pids={})
    box = SampleBox()

    async def run() -> SystemSampled:
        runner = cast(Runner, StandInRunner([gang]))
        sampler = asyncio.create_task(
            Sampler({"here": SampledAgent(box=box)}, runner=runner).run()
        )
        await until(lambda: box.is_due(0.0), "the record is due")
        await asyncio.sleep(0.7)
        sampler.cancel()
        await asyncio.gather(sampler, return_exceptions=True)
        return box.take(0.0)

    assert len(asyncio.run(run()).samples) == 1


def test_a_reading_that_hangs_is_said_and_is_the_only_one_until_it_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    goes_on = threading.Event()
    began: list[HostReader] = []

    def hang(self: HostReader, _: object) -> Reading:
        began.append(self)
        goes_on.wait(600)
        return Reading({"memory_free": 1.0})

    monkeypatch.setattr(HostReader, "read", hang)
    monkeypatch.setattr(sampler_module, "_READ_S", 0.1)
    gang = LivingGang(run_of(make_plan("1.1.1", [], sampling_interval_s=0.1)), pids={})
    box = SampleBox()

    async def run() -> tuple[SystemSampled, SystemSampled]:
        runner = cast(Runner, StandInRunner([gang]))
        sampler = asyncio.create_task(
            Sampler({"here": SampledAgent(box=box)}, runner=runner).run()
        )
        await until(lambda: box.is_due(0.0), "the record is due")
        await asyncio.sleep(0.5)  # others would have begun by now
        before = box.take(-math.inf)
        assert len(began) == 1
        goes_on.set()
        await until(lambda: box.is_due(0.0), "the record is due")
        sampler.cancel()
        await asyncio.gather(sampler, return_exceptions=True)
        return before, box.take(0.0)

    before, after = asyncio.run(run())
    assert before.samples == []
    assert HANGS_IN_KERNEL in before.missing["host"]["cpu_util_simple"]
    assert after.samples[-1].values == {"host": {"memory_free": 1.0}}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_gpu_memory_is_that_of_the_rank_or_of_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = [subprocess.Popen(WORKER, process_group=0) for _ in range(2)]
    memory = {ranks[0].pid: 5 << 30, os.getpid(): 1 << 30}  # the other's is a stranger
    monkeypatch.setenv(SHAPE_VARIABLE, "1")
    monkeypatch.setenv("DET_TEST_NVML_MEMORY", json.dumps(memory))
    slots = [SlotView(id=i, kind="cuda", index=i, name="H100", uuid=f"GPU-{i}") for i in (0, 1)]
    plan = make_plan("1.1.1", [], slots=slots, sampling_interval_s=0.1)
    gang = LivingGang(run_of(plan), pids={0: ranks[0].pid, 1: ranks[1].pid})
    runner = cast(Runner, StandInRunner([gang]))
    box = SampleBox()

    samples: list[SystemSample] = []
    missing: dict[str, Mapping[str, str]] = {}

    def is_enough() -> bool:
        report = box.take(0.0)
        samples.extend(report.samples)
        missing.update(report.missing)
        names = missing.get("rank:1.1.1:1", {})
        return names.get("gpu_memory") == NOT_LISTED and len(used()) > 3

    def used() -> list[tuple[str, float]]:
        return [
            (source, values["gpu_memory"])
            for sample in samples
            for source, values in sample.values.items()
            if "gpu_memory" in values
        ]

    async def run() -> None:
        agents = {"here": SampledAgent(box=box, gpus=["GPU-0"])}
        sampler = asyncio.create_task(Sampler(agents, runner=runner).run())
        await until(is_enough, "the record is due")
        sampler.cancel()
        await ended()

    try:
        asyncio.run(run())
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert set(used()) == {("rank:1.1.1:0", 5 << 30)}
    times = [sample.at for sample in samples]
    assert times == sorted(times)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_processes_below_a_rank_are_found_and_forgotten_when_they_end() -> None:
    rank = subprocess.Popen(
        [sys.executable, "-S", "-c", RANK], stdout=subprocess.PIPE, process_group=0
    )
    assert rank.stdout is not None
    tree = RankTree(rank.pid)
    try:
        assert rank.stdout.read(2) == b".."
        now = 100.0
        tree.read(now)
        children = psutil.Process(rank.pid).children()
        assert sorted(tree.worker_pids) == sorted(child.pid for child in children)
        values, workers = tree.read(now + 2)
        assert workers["num_processes"] == 2
        assert {"cpu_util", "memory_rss", "disk_read"} <= workers.keys()
        assert {"cpu_util", "cpu_wait", "memory_rss", "disk_read"} <= values.keys()
        assert workers["memory_rss"] == pytest.approx(
            sum(child.memory_info().rss for child in children), rel=0.3
        )
        os.kill(children[0].pid, signal.SIGKILL)
        wait_until(lambda: children[0].status() == psutil.STATUS_ZOMBIE, "it has ended")
        values, workers = tree.read(now + 4)
        assert workers["num_processes"] == 1
        rank.kill()
        rank.wait()
        with pytest.raises(ProcessLookupError):
            tree.read(now + 6)
    finally:
        tree.close()
        os.killpg(rank.pid, signal.SIGKILL)
        rank.wait()
        rank.stdout.close()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_disk_use_of_a_worker_that_was_reaped_does_not_count_again_for_its_rank(
    tmp_path: Path,
) -> None:
    code = """
import os, sys, time
def write(path, megabytes):
    with open(path, "wb") as file:
        file.write(bytes(megabytes << 20)); file.flush(); os.fsync(file.fileno())
child = os.fork()
if child == 0:
    write(sys.argv[1], 20)
    os.write(1, b"w")
    time.sleep(3600)
sys.stdin.readline()
os.kill(child, 9); os.waitpid(child, 0)
os.write(1, b"r")
time.sleep(3600)
"""
    rank = subprocess.Popen(
        [sys.executable, "-S", "-c", code, str(tmp_path / "written")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0,
    )  # fmt: skip
    assert rank.stdin is not None
    assert rank.stdout is not None
    tree = RankTree(rank.pid)
    try:
        assert rank.stdout.read(1) == b"w"
        tree.read(100.0)
        tree.read(101.0)
        rank.stdin.write(b"\n")
        rank.stdin.flush()
        assert rank.stdout.read(1) == b"r"
        rates = [tree.read(102.0 + second)[0].get("disk_write", 0.0) for second in range(4)]
        assert max(rates) < 1 << 20
    finally:
        tree.close()
        rank.kill()
        rank.wait()
        rank.stdin.close()
        rank.stdout.close()
