"""The processes of gangs: for each rank itself, and its workers together."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

from det_jupyter.agent.runs.runner import LivingGang
from det_jupyter.agent.sampler.rank_tree import RankTree
from det_jupyter.agent.sampler.rates import Reading
from det_jupyter.agent.sampler.shared_memory import SharedMemory
from det_jupyter.measures import PROCESS

LINUX_ONLY = "processes are measured on Linux only, which has /proc"


_DISK = ("disk_read", "disk_write")


class ProcessReader:
    """Reads the processes of gangs. Used by one thread at a time."""

    def __init__(self) -> None:
        self._trees: dict[str, RankTree] = {}  # by the source of the rank
        self._shared = SharedMemory()
        self.source_of: Mapping[int, str] = {}  # pid -> source, as of the last reading

    def read(self, gangs: Iterable[LivingGang], now: float) -> dict[str, Reading]:
        """Return by source what was measured of these gangs; others are forgotten.

        Args:
            gangs: What to read.
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
            except OSError:  # it has ended
                self._drop(key)
                continue
            readings[f"rank:{key}"], readings[f"workers:{key}"] = Reading(rank), Reading(workers)
            _explain(readings[f"rank:{key}"], _DISK, tree.files.io_problem)
            _explain(readings[f"rank:{key}"], ("cpu_wait",), tree.files.wait_problem)
            _explain(readings[f"workers:{key}"], PROCESS, tree.files.children_problem)
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


def _explain(reading: Reading, names: Iterable[str], problem: str) -> None:
    if problem:
        reading.missing |= dict.fromkeys(names, problem)
