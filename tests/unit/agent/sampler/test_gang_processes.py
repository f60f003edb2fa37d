"""Shared memory is read within its budget, and failures have reasons."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from det_jupyter.agent.sampler import gang_processes
from det_jupyter.agent.sampler.gang_processes import SharedMemory, pss_bytes
from tests.waiting import wait_until_executed


def _raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


def test_pss_is_read_process_by_process_and_told_when_its_source_is_complete() -> None:
    memory = SharedMemory(read=lambda pid: pid, cpu_time=lambda: 0.0)
    members = {"rank:a:0": [1], "workers:a:0": [10, 20], "workers:a:1": []}
    steps = [memory.step(members, float(now)) for now in range(8)]
    assert steps == [{"rank:a:0": 1}, {}, {"workers:a:0": 30}, {}, {}, {}, {}, {}]
    assert memory.step(members, 10.0) == {"rank:a:0": 1}


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_the_memory_of_a_process_is_less_if_it_is_shared() -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        wait_until_executed(process)
        alone, rss = pss_bytes(process.pid), psutil.Process(process.pid).memory_info().rss
        process.kill()
    assert 0 < alone < rss


def test_pss_that_takes_long_is_read_rarely() -> None:
    spent = [0.0]

    def read(pid: int) -> int:
        spent[0] += 0.05
        return 1

    memory = SharedMemory(read=read, cpu_time=lambda: spent[0])
    for now in range(1000):
        memory.step({"rank:a:0": [1]}, float(now))
    assert 0.05 < spent[0] <= 0.0005 * 1000 + 0.05


@pytest.mark.parametrize(
    ("error", "problems"),
    [
        (psutil.AccessDenied(1), {"rank:a:0": gang_processes.NO_PERMISSION}),
        (psutil.NoSuchProcess(1), {}),
        (AttributeError("pss"), {"rank:a:0": gang_processes.NO_PSS}),
    ],
)
def test_pss_that_cannot_be_read_has_a_reason(error: Exception, problems: dict[str, str]) -> None:
    memory = SharedMemory(read=_raising(error), cpu_time=lambda: 0.0)
    assert memory.step({"rank:a:0": [os.getpid()]}, 1.0) == {}
    assert memory.problems == problems
