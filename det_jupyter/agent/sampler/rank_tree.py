"""Reads a rank and its descendants from Linux's /proc.

Data loaders start their workers in the main thread, so the children of the main thread are listed
in each reading. Those of a rank's other threads, of which it has many, are listed every 30 s. The
workers, of which there may be many too, are read at most once a second.

An open file of /proc belongs to its process: when that has ended, reading fails, even if another
process has the pid. Reading it again takes at most half as long as opening it. A rank with four
workers takes 0.06 ms of CPU time; psutil, which opens the files each time, takes 0.34 ms, and 1.8
ms more for their children, because it reads the parents of all processes (120 in this
measurement).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from det_jupyter.agent.sampler.readings import Rates, Values

_ALL_THREADS_S = 30.0
_WORKERS_S = 0.9  # less than a second, because intervals vary a little
_STATE, _UTIME, _STIME, _THREADS, _RSS = 0, 11, 12, 17, 21  # fields of `stat` after the name
_READ_BYTES, _WRITE_BYTES = 9, 11  # words of `io`
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_ENDED = (b"Z", b"X")
_MOST_BYTES, _CHILDREN_BYTES = 1024, 1 << 16  # of a file, and of the list of children

NO_PERMISSION = "no permission to read what this process counts (/proc/PID/io)"
NOT_COUNTED = "the system does not count the disk use of processes (/proc/PID/io)"
NO_WAITS = "the kernel does not count how long threads wait for a core (/proc/PID/schedstat)"
NO_CHILDREN = "the kernel does not list the children of processes (/proc/PID/task/TID/children)"


class ProcessUsage(NamedTuple):
    """CPU seconds of a process since its start, and its present memory and threads."""

    cpu_s: float
    rss_bytes: int
    num_threads: int


class ProcFiles:
    """The open files of one process in /proc.

    Raises:
        OSError: There is no such process.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.io_problem = ""  # why `io` cannot be read
        self._stat = _open(pid, "stat")
        self._io: int | None = None
        self._schedule: int | None = None
        self.wait_problem = ""  # why `schedstat` cannot be read
        self._children: int | None = None
        self.children_problem = ""  # why `children` cannot be read
        try:
            self._io = _open(pid, "io")
        except PermissionError:
            self.io_problem = NO_PERMISSION
        except OSError:
            self.io_problem = NOT_COUNTED
        try:
            self._children = _open(pid, f"task/{pid}/children")
        except OSError:
            self.children_problem = NO_CHILDREN

    def usage(self) -> ProcessUsage | None:
        """Return its usage; None if it is a zombie.

        Raises:
            OSError: It has ended.
        """
        data = _content(self._stat)
        fields = data[data.rindex(b")") + 2 :].split(None, _RSS + 1)
        if fields[_STATE] in _ENDED:
            return None
        return ProcessUsage(
            (int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS_PER_S,
            int(fields[_RSS]) * _PAGE_BYTES,
            int(fields[_THREADS]),
        )

    def disk_bytes(self) -> tuple[int, int] | None:
        """Return the bytes that it has read from and written to disks; None if unknown.

        Raises:
            OSError: It has ended.
        """
        if self._io is None:
            return None
        try:
            words = _content(self._io).split()
        except PermissionError:  # for example, reading needs CAP_SYS_PTRACE
            self.io_problem = NO_PERMISSION
            os.close(self._io)
            self._io = None
            return None
        return int(words[_READ_BYTES]), int(words[_WRITE_BYTES])

    def core_wait_s(self) -> float | None:
        """Return how long its main thread was ready to run and had no core; None if unknown.

        Raises:
            OSError: It has ended.
        """
        if self.wait_problem:
            return None
        if self._schedule is None:
            try:
                self._schedule = _open(self.pid, "schedstat")
            except OSError:
                self.wait_problem = NO_WAITS
                return None
        return int(_content(self._schedule).split()[1]) / 1e9

    def children(self) -> list[int]:
        """Return the pids of the children of its main thread.

        Raises:
            OSError: It has ended.
        """
        if self._children is None:
            return []
        return list(map(int, _content(self._children, _CHILDREN_BYTES).split()))

    def close(self) -> None:
        """Close the files."""
        for fd in (self._stat, self._io, self._schedule, self._children):
            if fd is not None:
                os.close(fd)


def _open(pid: int, name: str) -> int:
    return os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)


def _content(descriptor: int, most_bytes: int = _MOST_BYTES) -> bytes:
    return os.pread(descriptor, most_bytes, 0)


def children_of_threads(pid: int) -> list[int]:
    """Return the pids of the children of all threads of a process; none if it has ended."""
    children: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                children += map(int, file.read().split())
    return children


class _Member:
    """A process of the tree, and the rates of its counters."""

    def __init__(self, pid: int) -> None:
        self.files = ProcFiles(pid)
        self.usage: ProcessUsage | None = None  # None: a zombie, whose rates count for nothing
        self.rates: Values = {}
        self._counts = Rates()

    def read(self, now: float, *, with_wait: bool = False) -> None:
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
    """A rank and its descendants.

    Args:
        pid: The rank's.

    Raises:
        OSError: There is no such process.
    """

    def __init__(self, pid: int) -> None:
        self._rank = _Member(pid)
        self._workers: dict[int, _Member] = {}  # by pid, all descendants, parents first
        self._children: set[int] = set()
        self._workers_at = self._all_threads_at = 0.0  # when they are due, monotonic
        self._has_lost = False  # whether a process has ended since the last reading

    @property
    def worker_pids(self) -> list[int]:
        """Pids of the rank's descendants."""
        return list(self._workers)

    @property
    def files(self) -> ProcFiles:
        """The rank's own files."""
        return self._rank.files

    def read(self, now: float) -> tuple[Values, Values]:
        """Return the values of the rank, and the sums of its workers (empty if they are not due).

        Raises:
            OSError: The rank has ended.
        """
        had_lost, self._has_lost = self._has_lost, False
        self._rank.read(now, with_wait=True)
        children = set(self._rank.files.children())
        self._has_lost |= not self._children <= children
        self._children = children
        self._add(children)
        if now >= self._all_threads_at:
            self._all_threads_at = now + _ALL_THREADS_S
            self._add(children_of_threads(self._rank.files.pid))
        workers: Values = {}
        if now >= self._workers_at:
            self._workers_at = now + _WORKERS_S
            workers = self._read_workers(now)
        if had_lost or self._has_lost:
            # When a child is reaped, the kernel adds its disk use to that of its parent.
            for values in (self._rank.rates, workers):
                values.pop("disk_read", None)
                values.pop("disk_write", None)
        return _sums([self._rank]), workers

    def _read_workers(self, now: float) -> Values:
        unread = list(self._workers)
        for pid in unread:  # grows by the children that are found
            worker = self._workers[pid]
            try:
                worker.read(now)
                unread += self._add(worker.files.children())
            except OSError:
                self._has_lost = True
                self._workers.pop(pid).files.close()
        living = [worker for worker in self._workers.values() if worker.usage is not None]
        return _sums(living) | {"num_processes": float(len(living))}

    def _add(self, pids: Iterable[int]) -> list[int]:
        added = []
        for pid in pids:
            # The follower of a run that was started by hand is a child of the rank.
            if pid not in self._workers and pid != os.getpid():
                with suppress(OSError):  # the process has ended
                    self._workers[pid] = _Member(pid)
                    added.append(pid)
        return added

    def close(self) -> None:
        """Close the files of its processes."""
        for member in (self._rank, *self._workers.values()):
            member.files.close()
        self._workers.clear()


def _sums(members: Iterable[_Member]) -> Values:
    values: Values = {}
    for member in members:
        if member.usage is not None:
            _, rss_bytes, num_threads = member.usage
            values["memory_rss"] = values.get("memory_rss", 0.0) + rss_bytes
            values["num_threads"] = values.get("num_threads", 0.0) + num_threads
            for name, rate in member.rates.items():
                values[name] = values.get(name, 0.0) + rate
    return values
