"""A rank and the processes below it: its data loaders' workers, and what else it has started.

Data loaders start their workers in the main thread, whose children are looked up in each reading.
Those of a rank's other threads, of which it has many, are looked up every 30 s. The workers, of
which there may be many too, are read at most once a second.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from det_jupyter.agent.sampler.procfs import ProcFiles, Usage, children_of_threads
from det_jupyter.agent.sampler.rates import Rates, Values

_LOOK_EVERYWHERE_S = 30.0
_WORKERS_S = 0.9  # below a second: the intervals of ticks differ a little


class _Member:
    """A process of the tree, with the rates of its counters."""

    def __init__(self, pid: int) -> None:
        self.files = ProcFiles(pid)
        self.usage: Usage | None = None
        self.rates: Values = {}
        self._counts = Rates()

    def read(self, now: float, *, with_wait: bool = False) -> None:
        self.rates = {}
        self.usage = self.files.usage()
        if self.usage is None:
            return
        counts = {"cpu_util": 100 * self.usage.cpu_s}
        if (disk := self.files.disk_bytes()) is not None:
            counts["disk_read"], counts["disk_write"] = disk
        if with_wait and (waited_s := self.files.core_wait_s()) is not None:
            counts["cpu_wait"] = 100 * waited_s
        self.rates = self._counts.of(counts, now)


class RankTree:
    """The processes of one rank.

    Args:
        pid: The rank's.

    Raises:
        OSError: There is no such process.
    """

    def __init__(self, pid: int) -> None:
        self._rank = _Member(pid)
        self._workers: dict[int, _Member] = {}  # all below the rank, parents first
        self._children: set[int] = set()
        self._workers_at = self._look_everywhere_at = 0.0
        self._has_lost = False

    @property
    def worker_pids(self) -> list[int]:
        """The processes below the rank."""
        return list(self._workers)

    @property
    def files(self) -> ProcFiles:
        """The rank's own files."""
        return self._rank.files

    def read(self, now: float) -> tuple[Values, Values]:
        """Return the values of the rank, and of its workers together where they were read.

        Raises:
            OSError: The rank is gone.
        """
        had_lost, self._has_lost = self._has_lost, False
        self._rank.read(now, with_wait=True)
        children = set(self._rank.files.children())
        self._has_lost |= not self._children <= children
        self._children = children
        self._add(children)
        if now >= self._look_everywhere_at:
            self._look_everywhere_at = now + _LOOK_EVERYWHERE_S
            self._add(children_of_threads(self._rank.files.pid))
        workers: Values = {}
        if now >= self._workers_at:
            self._workers_at = now + _WORKERS_S
            workers = self._read_workers(now)
        if had_lost or self._has_lost:
            # The system adds the disk use of a child that was reaped to its parent's.
            for values in (self._rank.rates, workers):
                values.pop("disk_read", None)
                values.pop("disk_write", None)
        return _together([self._rank]), workers

    def _read_workers(self, now: float) -> Values:
        unread = list(self._workers)
        for pid in unread:  # it grows meanwhile
            worker = self._workers[pid]
            try:
                worker.read(now)
                unread += self._add(worker.files.children())
            except OSError:
                self._has_lost = True
                self._workers.pop(pid).files.close()
        living = [worker for worker in self._workers.values() if worker.usage is not None]
        return _together(living) | {"num_processes": float(len(living))}

    def _add(self, pids: Iterable[int]) -> list[int]:
        added = []
        for pid in pids:
            if pid not in self._workers:
                with suppress(OSError):  # it has ended
                    self._workers[pid] = _Member(pid)
                    added.append(pid)
        return added

    def close(self) -> None:
        """Close the files of its processes."""
        for member in (self._rank, *self._workers.values()):
            member.files.close()
        self._workers.clear()


def _together(members: Iterable[_Member]) -> Values:
    values: Values = {}
    for member in members:
        if member.usage is not None:
            _, rss_bytes, num_threads = member.usage
            values["memory_rss"] = values.get("memory_rss", 0.0) + rss_bytes
            values["num_threads"] = values.get("num_threads", 0.0) + num_threads
            for name, rate in member.rates.items():
                values[name] = values.get(name, 0.0) + rate
    return values
