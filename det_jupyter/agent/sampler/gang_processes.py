"""Reads the processes of gangs: each rank, and the workers of a rank together.

Computing the PSS (memory in which shared pages count by their share) takes the kernel milliseconds
for a gigabyte, because it visits all pages. So one process is read at a time, with pauses in
proportion to the CPU time that it took, and each source at most every 10 s.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import psutil

from det_jupyter.agent.runs.active_run import LivingGang
from det_jupyter.agent.sampler.rank_tree import RankTree
from det_jupyter.agent.sampler.readings import Reading
from det_jupyter.contract.values.measures import PROCESS

LINUX_ONLY = "processes are measured on Linux only, which has /proc"

_DISK = ("disk_read", "disk_write")
_SHARE = 0.0005  # largest share of a core that reading PSS takes
_ROUND_S = 10.0  # shortest interval between two readings of a source
NO_PERMISSION = "no permission to read the memory map of this process"
NO_PSS = "the kernel does not count shared memory (/proc/PID/smaps)"

Members = Mapping[str, Sequence[int]]  # source -> pids


def pss_bytes(pid: int) -> int:
    """Return the memory of a process, with pages shared by N processes counted as 1/N.

    Raises:
        psutil.Error: The process has ended, or belongs to another user.
        AttributeError, OSError: The kernel does not count it.
    """
    return int(psutil.Process(pid).memory_full_info().pss)


class SharedMemory:
    """Reads the PSS of sources, each a group of processes, within a budget of CPU time.

    Args:
        read: Returns the PSS of a process in bytes.
        cpu_time: Returns the CPU seconds that this thread has used.
    """

    def __init__(
        self,
        read: Callable[[int], int] = pss_bytes,
        cpu_time: Callable[[], float] = time.thread_time,
    ) -> None:
        self._read = read
        self._cpu_time = cpu_time
        self._left: list[tuple[str, list[int]]] = []  # sources and pids yet to read, last one next
        self._total = 0  # bytes of the source that is being read
        self._round_at = 0.0
        self._next_at = 0.0
        self.problems: dict[str, str] = {}  # by source: why it has no values

    def step(self, members: Members, now: float) -> dict[str, float]:
        """Read the next process, if the pause since the last one is over.

        Returns:
            The sum over the processes of a source, if this was its last one; else nothing.
        """
        if now < self._next_at:
            return {}
        began = self._cpu_time()
        found = self._next_of_round(members, now)
        self._next_at = now + (self._cpu_time() - began) / _SHARE
        return dict([found]) if found else {}

    def _next_of_round(self, members: Members, now: float) -> tuple[str, int] | None:
        """Read the next process of this round; return its source and sum if it is the last."""
        if not self._left and now >= self._round_at:
            self._round_at = now + _ROUND_S
            self._left = [(source, list(pids)) for source, pids in members.items() if pids]
            self._left.reverse()
        if not self._left:
            return None
        source, pids = self._left[-1]
        self._total += self._pss(source, pids.pop())
        if pids:
            return None
        self._left.pop()
        total, self._total = self._total, 0
        return (source, total) if total and source not in self.problems else None

    def _pss(self, source: str, pid: int) -> int:
        try:
            return self._read(pid)
        except psutil.AccessDenied:
            self.problems[source] = NO_PERMISSION
        except psutil.NoSuchProcess:
            pass
        except (AttributeError, OSError):
            self.problems[source] = NO_PSS
        return 0


class ProcessReader:
    """Reads the processes of gangs; keeps their files open. Used by one thread at a time."""

    def __init__(self) -> None:
        self._trees: dict[str, RankTree] = {}  # by the source of the rank
        self._shared = SharedMemory()
        self.source_of: Mapping[int, str] = {}  # by pid, as of the last reading

    def read(self, gangs: Iterable[LivingGang], now: float) -> dict[str, Reading]:
        """Return the readings of these gangs by source, and close the files of other gangs.

        Args:
            now: Monotonic seconds.
        """
        pids = {f"{gang.run.id}:{rank}": pid for gang in gangs for rank, pid in gang.pids.items()}
        if sys.platform != "linux":
            return {
                f"rank:{key}": Reading(missing=dict.fromkeys(PROCESS, LINUX_ONLY)) for key in pids
            }
        for key in [key for key in self._trees if key not in pids]:
            self._drop(key)
        readings: dict[str, Reading] = {}
        members: dict[str, list[int]] = {}
        for key, pid in pids.items():
            try:
                tree = self._trees.get(key) or self._trees.setdefault(key, RankTree(pid))
                rank, workers = tree.read(now)
            except OSError:  # the rank has ended
                self._drop(key)
                continue
            readings[f"rank:{key}"], readings[f"workers:{key}"] = Reading(rank), Reading(workers)
            _set_missing(readings[f"rank:{key}"], _DISK, tree.files.io_problem)
            _set_missing(readings[f"rank:{key}"], ("cpu_wait",), tree.files.wait_problem)
            _set_missing(readings[f"workers:{key}"], PROCESS, tree.files.children_problem)
            members |= {f"rank:{key}": [pid], f"workers:{key}": tree.worker_pids}
        self.source_of = {pid: source for source, pids in members.items() for pid in pids}
        self._add_shared(readings, members, now)
        return readings

    def _add_shared(
        self, readings: dict[str, Reading], members: Mapping[str, list[int]], now: float
    ) -> None:
        for source, total in self._shared.step(members, now).items():
            if source in readings:
                readings[source].values["memory_pss"] = float(total)
        for source, problem in self._shared.problems.items():
            if source in readings:
                readings[source].missing["memory_pss"] = problem

    def _drop(self, key: str) -> None:
        if (tree := self._trees.pop(key, None)) is not None:
            tree.close()
        for source in (f"rank:{key}", f"workers:{key}"):
            self._shared.problems.pop(source, None)

    def close(self) -> None:
        """Close all files."""
        for key in list(self._trees):
            self._drop(key)


def _set_missing(reading: Reading, names: Iterable[str], problem: str) -> None:
    if problem:
        reading.missing |= dict.fromkeys(names, problem)
