"""The cost of the agent's sampler, with 8 simulated GPUs and 16 ranks with their workers.

    python -m tests.benchmarks.sampler_cost [--ranks 16] [--workers 4] [--seconds 20]

Sampling runs as in an agent: the sampler in this process, NVML's reader in its own process, and
reports are written as JSON. CPU time is the time of both processes, less that of this process with
nothing to sample. The simulated driver answers at once, so the cost of a real driver's NVML calls
has to be added. PCIe is measured for 20 ms, during a sleep. The lower bound reads the same files
of /proc, already open, equally often, and does nothing with them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import psutil

from det_jupyter.agent.runs.active_run import LivingGang
from det_jupyter.agent.runs.memory_watch import MemoryWatch
from det_jupyter.agent.runs.runner import Runner
from det_jupyter.agent.sampler.box import SampleBox
from det_jupyter.agent.sampler.sampler import SampledAgent, Sampler
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.nvml_driver import FAKE_NVML_VARIABLE
from det_jupyter.contract.messages import AgentReports
from tests.benchmarks.quick import arguments as words_of
from tests.fake_nvml import SHAPE_VARIABLE
from tests.integration.agent_support import make_plan, run_of

QUICK = "--ranks 2 --workers 1 --megabytes 1 --seconds 1"
KEYS = {"benchmark", "idle_percent", "intervals"}  # keys of the JSON in the last line

_RANK = """
import os, subprocess, sys, time
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        break
buffer = bytearray(int(sys.argv[2]) << 20)
time.sleep(3600)
"""
_HOST_FILES = ("stat", "meminfo", "diskstats", "net/dev")


@dataclass
class StandInRunner:
    """Gangs that live as long as the benchmark."""

    gangs: list[LivingGang]
    news: asyncio.Event = field(default_factory=asyncio.Event)
    memory: MemoryWatch = field(default_factory=MemoryWatch)

    def living_gangs(self, agent_id: str) -> list[LivingGang]:
        return self.gangs

    def is_watched(self, agent_id: str) -> bool:
        return False


@contextmanager
def ranks(number: int, *, workers: int, megabytes: int) -> Iterator[list[int]]:
    """Start ranks that sleep, each with its workers and that much memory."""
    argv = [sys.executable, "-S", "-c", _RANK, str(workers), str(megabytes)]
    processes = [subprocess.Popen(argv, process_group=0) for _ in range(number)]
    try:
        deadline = time.monotonic() + 30
        while any(len(psutil.Process(p.pid).children()) < workers for p in processes):
            assert time.monotonic() < deadline, "the workers have not started"
            time.sleep(0.1)
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            os.killpg(process.pid, 9)
            process.wait()


def readers() -> list[int]:
    """Return the pid of the process that reads the GPUs, if there is one."""
    children = psutil.Process().children()
    module = "det_jupyter.agent.sampler.gpu_process"
    return [child.pid for child in children if module in child.cmdline()]


def cpu_times(readers: Sequence[int]) -> tuple[float, float]:
    """Return the CPU seconds of this process, and of the process that reads the GPUs."""
    return time.process_time(), sum(map(_run_s, readers))


def _run_s(pid: int) -> float:
    """Return the exact CPU seconds of a process with one thread; `stat` has steps of 10 ms."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


async def sample(pids: Sequence[int], interval_s: float, seconds: float) -> Mapping[str, float]:
    """Return the share of a core that sampling takes, and the amount of its results."""
    plan = make_plan("1.1.1", [], slots=len(pids), sampling_interval_s=interval_s)
    gangs = [LivingGang(run_of(plan), pids=dict(enumerate(pids)))] if pids else []
    runner = StandInRunner(gangs)
    box = SampleBox()
    agents = {"here": SampledAgent(box=box, gpus=[f"GPU-{index}" for index in range(8)])}
    task = asyncio.create_task(Sampler(agents, runner=cast(Runner, runner)).run())
    await asyncio.sleep(3.0)  # until processes are found and NVML is open
    box.take(time.monotonic())
    pids_of_readers = readers()
    began, before = time.monotonic(), cpu_times(pids_of_readers)
    num_samples = num_bytes = num_values = 0
    while time.monotonic() - began < seconds:
        await asyncio.sleep(1.0)
        if box.is_due(time.monotonic()):
            report = box.take(time.monotonic())
            num_bytes += len(AgentReports(session="", reports=[report]).model_dump_json())
            num_samples += len(report.samples)
            num_values += sum(len(of) for s in report.samples for of in s.values.values())
    agent_s, gpus_s = (
        after - then for after, then in zip(cpu_times(pids_of_readers), before, strict=True)
    )
    wall = time.monotonic() - began
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return {
        "percent_of_core": 100 * (agent_s + gpus_s) / wall,
        "gpus_percent": 100 * gpus_s / wall,
        "values_per_s": num_values / wall,
        "kilobytes_per_s": num_bytes / wall / 1000,
        "samples_per_s": num_samples / wall,
    }


def floor(pids: Sequence[int], interval_s: float, seconds: float) -> float:
    """Return the share of a core that reading the files alone takes."""
    everyone = [*pids, *(child.pid for pid in pids for child in psutil.Process(pid).children())]
    names = [f"/proc/{pid}/{name}" for pid in everyone for name in ("stat", "io")]
    names += [f"/proc/{name}" for name in _HOST_FILES]
    files = [os.open(name, os.O_RDONLY) for name in names]
    began, before = time.monotonic(), time.process_time()
    while time.monotonic() - began < seconds:
        for file in files:
            os.pread(file, 4096, 0)
        time.sleep(interval_s)
    share = 100 * (time.process_time() - before) / (time.monotonic() - began)
    for file in files:
        os.close(file)
    return share


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print a table; its last line is JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--megabytes", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args(words_of(QUICK, arguments))
    paths.data_dir().mkdir(parents=True, exist_ok=True)
    os.environ |= {FAKE_NVML_VARIABLE: "tests.fake_nvml", SHAPE_VARIABLE: "8"}
    results: dict[str, dict[str, float]] = {}
    idle = asyncio.run(sample([], 1.0, options.seconds / 2))["percent_of_core"]
    with ranks(options.ranks, workers=options.workers, megabytes=options.megabytes) as pids:
        for interval_s in (1.0, 0.1):
            bare = floor(pids, interval_s, options.seconds / 2)
            found = asyncio.run(sample(pids, interval_s, options.seconds))
            results[f"{interval_s:g}"] = {"floor_percent": bare, **found}
    print(f"8 GPUs, {options.ranks} ranks with {options.workers} workers each")
    print(f"nothing to sample: {idle:.3f} % of a core")
    print("interval     cost  of it GPUs   floor   values/s   kB/s   samples/s")
    for interval, row in results.items():
        print(
            f"{interval:>6} s {row['percent_of_core']:7.2f} % {row['gpus_percent']:9.2f} %"
            f" {row['floor_percent']:5.2f} %"
            f" {row['values_per_s']:9.0f} {row['kilobytes_per_s']:7.1f}"
            f" {row['samples_per_s']:9.1f}"
        )
    print(json.dumps({"benchmark": "sampler_cost", "idle_percent": idle, "intervals": results}))


if __name__ == "__main__":
    main()
