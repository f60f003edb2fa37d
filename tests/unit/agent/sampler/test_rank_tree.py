"""A rank and the processes below it: what is counted of a tree whose processes end.

The kernel adds the disk use of a child that was reaped to its parent's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from det_jupyter.agent.sampler import rank_tree
from det_jupyter.agent.sampler.rank_tree import ProcessUsage, RankTree

RANK = 1


@dataclass
class Process:
    children: list[int] = field(default_factory=list)
    in_threads: list[int] = field(default_factory=list)  # children of its other threads
    written: int = 0
    cpu_s: float = 0.0
    num_threads: int = 1
    is_zombie: bool = False


class Machine:
    """Processes by pid, as /proc shows them."""

    def __init__(self) -> None:
        self.processes = {RANK: Process()}
        self.on_read: Callable[[int], None] = lambda pid: None  # called ahead of each reading
        self.opened: list[Files] = []

    def fork(self, parent: int, pid: int, *, in_thread: bool = False) -> None:
        self.processes[pid] = Process()
        own = self.processes[parent]
        (own.in_threads if in_thread else own.children).append(pid)

    def write(self, pid: int, count: int) -> None:
        self.processes[pid].written += count

    def reap(self, pid: int) -> None:
        """End a process; its parent takes over what it has counted."""
        ended = self.processes.pop(pid)
        for parent in self.processes.values():
            for children in (parent.children, parent.in_threads):
                if pid in children:
                    children.remove(pid)
                    parent.written += ended.written

    def open(self, pid: int) -> Files:
        if pid not in self.processes:
            raise FileNotFoundError
        self.opened.append(Files(self, pid))
        return self.opened[-1]


class Files:
    """The files of /proc of one process."""

    def __init__(self, machine: Machine, pid: int) -> None:
        self.machine, self.pid, self.is_closed = machine, pid, False

    def _process(self) -> Process:
        assert not self.is_closed
        self.machine.on_read(self.pid)
        if self.pid not in self.machine.processes:
            raise ProcessLookupError
        return self.machine.processes[self.pid]

    def usage(self) -> ProcessUsage | None:
        found = self._process()
        return None if found.is_zombie else ProcessUsage(found.cpu_s, 10, found.num_threads)

    def disk_bytes(self) -> tuple[int, int]:
        written = self.machine.processes[self.pid].written
        return 3 * written, written

    def core_wait_s(self) -> float:
        return 3 * self._process().cpu_s

    def children(self) -> list[int]:
        return list(self._process().children)

    def close(self) -> None:
        self.is_closed = True


def using(machine: Machine) -> pytest.MonkeyPatch:
    patch = pytest.MonkeyPatch()
    patch.setattr(rank_tree, "ProcFiles", machine.open)

    def in_threads(pid: int) -> list[int]:
        return list(machine.processes[pid].in_threads)

    patch.setattr(rank_tree, "children_of_threads", in_threads)
    return patch


@pytest.fixture
def machine() -> Iterator[Machine]:
    found = Machine()
    patch = using(found)
    yield found
    patch.undo()


def disk(values: dict[str, float]) -> tuple[float | None, float | None]:
    return values.get("disk_read"), values.get("disk_write")


UNKNOWN = (None, None)


def test_a_rank_and_its_workers_are_counted_apart(machine: Machine) -> None:
    machine.fork(RANK, 2)
    machine.fork(2, 3)
    tree = RankTree(RANK)
    tree.read(100.0)
    for pid, written, cpu_s, num_threads in ((RANK, 10, 0.25, 7), (2, 20, 0.5, 3), (3, 30, 1, 5)):
        machine.write(pid, written)
        machine.processes[pid].cpu_s = cpu_s
        machine.processes[pid].num_threads = num_threads
    rank, workers = tree.read(102.0)
    assert (disk(rank), disk(workers)) == ((15.0, 5.0), (75.0, 25.0))
    assert (rank["memory_rss"], workers["memory_rss"]) == (10, 20)
    assert (rank["num_threads"], workers["num_threads"]) == (7, 8)
    assert (rank["cpu_util"], workers["cpu_util"]) == (12.5, 75.0)
    assert rank["cpu_wait"] == 37.5
    assert "cpu_wait" not in workers
    assert workers["num_processes"] == 2
    assert tree.worker_pids == [2, 3]


def test_the_disk_use_of_a_reaped_child_is_not_counted_again(machine: Machine) -> None:
    machine.fork(RANK, 2)
    tree = RankTree(RANK)
    machine.write(2, 10**9)
    tree.read(100.0)
    tree.read(101.0)
    machine.write(RANK, 7)
    machine.reap(2)
    rank, workers = tree.read(102.0)
    assert (disk(rank), disk(workers)) == (UNKNOWN, UNKNOWN)
    assert (rank["memory_rss"], workers["num_processes"]) == (10, 0)  # the rest is known
    assert disk(tree.read(103.0)[0]) == UNKNOWN  # it may have been reaped amid the reading
    machine.write(RANK, 5)
    assert disk(tree.read(104.0)[0]) == (15.0, 5.0)


def test_a_child_reaped_after_its_parent_was_read_is_not_counted_in_the_next_reading(
    machine: Machine,
) -> None:
    machine.fork(RANK, 2)
    tree = RankTree(RANK)
    machine.write(2, 10**9)
    tree.read(100.0)

    def reap(pid: int) -> None:
        if pid == 2 and 2 in machine.processes:
            machine.reap(2)

    machine.on_read = reap
    assert disk(tree.read(101.0)[0]) == UNKNOWN
    assert disk(tree.read(102.0)[0]) == UNKNOWN
    machine.write(RANK, 5)
    tree.read(103.0)
    machine.write(RANK, 5)
    assert disk(tree.read(104.0)[0]) == (15.0, 5.0)


def test_a_worker_s_own_child_that_was_reaped_is_not_counted_as_the_worker_s(
    machine: Machine,
) -> None:
    machine.fork(RANK, 2)
    machine.fork(2, 3)
    tree = RankTree(RANK)
    machine.write(3, 10**9)
    tree.read(100.0)
    machine.reap(3)
    assert disk(tree.read(101.0)[1]) == UNKNOWN
    assert disk(tree.read(102.0)[1]) == UNKNOWN
    machine.write(2, 4)
    assert disk(tree.read(103.0)[1]) == (12.0, 4.0)


def test_a_zombie_uses_nothing_and_is_no_process(machine: Machine) -> None:
    machine.fork(RANK, 2)
    machine.fork(RANK, 3)
    tree = RankTree(RANK)
    tree.read(100.0)
    machine.processes[2].is_zombie = True
    _, workers = tree.read(101.0)
    assert (workers["num_processes"], workers["memory_rss"]) == (1, 10)


def test_the_process_that_reads_is_no_worker(machine: Machine) -> None:
    machine.fork(RANK, os.getpid())
    tree = RankTree(RANK)
    _, workers = tree.read(100.0)
    assert (tree.worker_pids, workers["num_processes"]) == ([], 0)


def test_workers_are_read_once_a_second_and_other_threads_every_30(machine: Machine) -> None:
    machine.fork(RANK, 2)
    tree = RankTree(RANK)
    assert "num_processes" in tree.read(100.0)[1]
    machine.fork(RANK, 3, in_thread=True)
    assert tree.read(100.5)[1] == {}
    assert tree.read(101.0)[1]["num_processes"] == 1
    assert tree.read(129.0)[1]["num_processes"] == 1
    assert tree.read(130.0)[1]["num_processes"] == 2


def test_the_files_of_what_has_ended_are_closed_and_of_a_rank_that_is_gone_it_is_raised(
    machine: Machine,
) -> None:
    machine.fork(RANK, 2)
    tree = RankTree(RANK)
    tree.read(100.0)
    machine.reap(2)
    tree.read(101.0)
    assert [files.is_closed for files in machine.opened] == [False, True]
    del machine.processes[RANK]
    with pytest.raises(ProcessLookupError):
        tree.read(102.0)
    tree.close()
    assert all(files.is_closed for files in machine.opened)


steps = st.lists(
    st.tuples(
        st.sampled_from(["fork", "write", "reap"]),
        st.integers(0, 3),
        st.integers(1, 1000),
        st.integers(0, 3),
    ),
    max_size=25,
)


@settings(max_examples=100)
@given(steps)
def test_never_is_more_counted_than_was_written(steps: list[tuple[str, int, int, int]]) -> None:
    machine = Machine()
    patch = using(machine)
    try:
        tree, now, total, counted = RankTree(RANK), 100.0, 0, 0.0
        tree.read(now)
        for next_pid, (what, which, amount, unread) in enumerate(steps, start=2):
            living = sorted(machine.processes)
            pid = living[which % len(living)]
            if what == "fork":
                machine.fork(pid, next_pid)
            elif what == "write":
                machine.write(pid, amount)
                total += amount
            elif pid != RANK and not machine.processes[pid].children:
                machine.reap(pid)
            if unread:  # one in four times, more happens ahead of the reading
                now += 1.0
                counted += sum(values.get("disk_write", 0.0) for values in tree.read(now))
                assert counted <= total + 1e-6
    finally:
        patch.undo()
