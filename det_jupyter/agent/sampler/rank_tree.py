"""A rank and the processes below it: its data loaders' workers, and what else it has started.

New processes are looked for every 2 s among the children of main threads, where data loaders start
theirs, and every 10 s among those of all threads. PSS is read when its share of the time
allows (shared_memory.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import psutil

from det_jupyter.agent.sampler.procfs import ProcessReading, ProcFiles, children_of
from det_jupyter.agent.sampler.rates import Rates, Values

_LOOK_S = 2.0
_LOOK_EVERYWHERE_S = 10.0


class _Member:
    """A process of the tree, with the rates of its counters."""

    def __init__(self, pid: int) -> None:
        self.files = ProcFiles(pid)
        self.cpu = Rates()
        self.disk = Rates()

    def read(self, now: float) -> tuple[ProcessReading, Values] | None:
        reading = self.files.read()
        if reading is None:
            return None
        counts: Values = {"cpu_util": 100 * reading.cpu_s}
        rates = self.cpu.of_all(counts, now)
        if (disk := self.files.disk_bytes()) is not None:
            counts = {"disk_read": disk[0], "disk_write": disk[1]}
            rates |= self.disk.of_all(counts, now)
        return reading, rates


class RankTree:
    """The processes of one rank.

    Args:
        pid: The rank's.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._members: dict[int, _Member] = {}
        self._look_at = self._look_everywhere_at = 0.0
        self._has_lost = False
        self._add([pid])

    @property
    def worker_pids(self) -> list[int]:
        """The processes below the rank."""
        return [pid for pid in self._members if pid != self._pid]

    @property
    def io_problem(self) -> str:
        """Why the rank's disk use is unknown, or ""."""
        rank = self._members.get(self._pid)
        return rank.files.io_problem if rank else ""

    def read(self, now: float) -> tuple[Values, Values]:
        """Return the values of the rank (none if it has ended) and of its workers together."""
        if now >= self._look_at:
            self._look(now)
        has_lost, self._has_lost = self._has_lost, False
        found = list(self._read_members(now))
        if self._has_lost or has_lost:
            # The system adds the disk use of a child that ended to its parent's.
            for _, _, rates in found:
                rates.pop("disk_read", None)
                rates.pop("disk_write", None)
        rank = [(reading, rates) for pid, reading, rates in found if pid == self._pid]
        workers = [(reading, rates) for pid, reading, rates in found if pid != self._pid]
        return _together(rank), _together(workers) | {"num_processes": float(len(workers))}

    def _read_members(self, now: float) -> Iterator[tuple[int, ProcessReading, Values]]:
        for pid, member in list(self._members.items()):
            try:
                if (read := member.read(now)) is not None:
                    yield pid, *read
            except OSError:
                self._has_lost = True
                self._members.pop(pid).files.close()

    def _look(self, now: float) -> None:
        self._look_at = now + _LOOK_S
        everywhere = now >= self._look_everywhere_at
        if everywhere:
            self._look_everywhere_at = now + _LOOK_EVERYWHERE_S
        unseen = list(self._members)
        while unseen:
            pid = unseen.pop()
            unseen += self._add(_children(pid, everywhere=everywhere))

    def _add(self, pids: Iterable[int]) -> list[int]:
        added = []
        for pid in pids:
            if pid not in self._members:
                try:
                    self._members[pid] = _Member(pid)
                except OSError:  # it has ended
                    continue
                added.append(pid)
        return added

    def close(self) -> None:
        """Close the files of its processes."""
        while self._members:
            self._members.popitem()[1].files.close()


def _children(pid: int, *, everywhere: bool) -> list[int]:
    try:
        return children_of(pid, of_all_threads=everywhere)
    except ProcessLookupError:
        return []
    except OSError:
        if not everywhere or not os.path.exists(f"/proc/{pid}"):
            return []
    try:  # a kernel without lists of children: all processes are searched
        return [child.pid for child in psutil.Process(pid).children()]
    except psutil.Error:
        return []


def _together(found: list[tuple[ProcessReading, Values]]) -> Values:
    if not found:
        return {}
    values: Values = {
        "memory_rss": float(sum(reading.rss_bytes for reading, _ in found)),
        "num_threads": float(sum(reading.num_threads for reading, _ in found)),
    }
    for _, rates in found:
        for name, rate in rates.items():
            values[name] = values.get(name, 0.0) + rate
    return values
