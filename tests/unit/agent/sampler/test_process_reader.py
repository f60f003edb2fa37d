"""The readings of gangs' processes, by source; what is read of each process is played."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace

import psutil
import pytest

from det_jupyter.agent.runs.active_run import LivingGang
from det_jupyter.agent.sampler import gang_processes as module
from det_jupyter.agent.sampler.gang_processes import LINUX_ONLY, ProcessReader, SharedMemory
from det_jupyter.agent.sampler.readings import Reading
from det_jupyter.contract.values.measures import PROCESS
from tests.integration.agent_support import make_plan, run_of


class Tree:
    """The processes of a rank, of which those with pids below 0 have ended."""

    closed: list[int]
    read_pss: Callable[[int], int]
    problems: SimpleNamespace

    def __init__(self, pid: int) -> None:
        if pid < 0:
            raise ProcessLookupError
        self.pid, self.files, self.worker_pids = pid, self.problems, [pid + 1, pid + 2]

    def read(self, now: float) -> tuple[dict[str, float], dict[str, float]]:
        if self.pid in self.closed:
            raise ProcessLookupError
        return {"cpu_util": now}, {"num_processes": 2.0}

    def close(self) -> None:
        self.closed.append(self.pid)


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> ProcessReader:
    monkeypatch.setattr(module, "RankTree", Tree)
    memory = SharedMemory(read=lambda pid: Tree.read_pss(pid), cpu_time=lambda: 0.0)
    monkeypatch.setattr(module, "SharedMemory", lambda: memory)
    Tree.closed, Tree.read_pss = [], lambda pid: pid * 1000
    Tree.problems = SimpleNamespace(io_problem="", wait_problem="", children_problem="")
    return ProcessReader()


def gang(*pids: int, id: str = "1.1.1") -> LivingGang:
    return LivingGang(run_of(make_plan(id, [], slots=len(pids))), dict(enumerate(pids)))


def test_ranks_and_their_workers_are_sources_of_their_own(reader: ProcessReader) -> None:
    found = reader.read([gang(10, 20), gang(30, id="2.1.1")], 5.0)
    assert found.keys() == {
        f"{kind}:{key}"
        for kind in ("rank", "workers")
        for key in ("1.1.1:0", "1.1.1:1", "2.1.1:0")
    }
    assert found["rank:1.1.1:0"] == Reading({"cpu_util": 5.0, "memory_pss": 10_000.0})
    assert found["workers:2.1.1:0"] == Reading({"num_processes": 2.0})
    assert reader.source_of == {
        10: "rank:1.1.1:0", 11: "workers:1.1.1:0", 12: "workers:1.1.1:0",
        20: "rank:1.1.1:1", 21: "workers:1.1.1:1", 22: "workers:1.1.1:1",
        30: "rank:2.1.1:0", 31: "workers:2.1.1:0", 32: "workers:2.1.1:0",
    }  # fmt: skip
    shared = [reader.read([gang(10)], now) for now in (6.0, 7.0, 8.0)]
    values = [each["workers:1.1.1:0"].values.get("memory_pss") for each in shared]
    assert values == [None, 23_000.0, None]


def test_what_the_kernel_does_not_tell_of_a_rank_has_a_reason(reader: ProcessReader) -> None:
    Tree.problems = SimpleNamespace(io_problem="io", wait_problem="wait", children_problem="none")

    def refuse(pid: int) -> int:
        raise psutil.AccessDenied(pid)

    Tree.read_pss = refuse
    found = reader.read([gang(10)], 5.0)
    assert found["rank:1.1.1:0"].missing == {
        "disk_read": "io", "disk_write": "io", "cpu_wait": "wait",
        "memory_pss": module.NO_PERMISSION,
    }  # fmt: skip
    assert found["workers:1.1.1:0"].missing == dict.fromkeys(PROCESS, "none")
    reader.read([], 6.0)
    Tree.read_pss = lambda pid: 0
    assert "memory_pss" not in reader.read([gang(40)], 7.0)["rank:1.1.1:0"].missing


def test_files_are_closed_when_a_rank_or_its_gang_is_gone(reader: ProcessReader) -> None:
    reader.read([gang(10, 20), gang(30, -1, id="2.1.1")], 5.0)
    assert Tree.closed == []
    assert reader.read([gang(10, 20)], 6.0).keys() >= {"rank:1.1.1:0", "rank:1.1.1:1"}
    assert Tree.closed == [30]
    Tree.closed.append(10)  # it has ended
    assert reader.read([gang(10, 20)], 7.0).keys() == {"rank:1.1.1:1", "workers:1.1.1:1"}
    reader.close()
    assert Tree.closed == [30, 10, 10, 20]


def test_elsewhere_than_on_linux_processes_are_not_measured(
    reader: ProcessReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    reasons = Reading(missing=dict.fromkeys(PROCESS, LINUX_ONLY))
    assert reader.read([gang(10)], 5.0) == {"rank:1.1.1:0": reasons}
