"""One process, read from Linux's /proc.

A file of /proc that stays open belongs to its process: after the end of that, reading fails, even
if another process has the pid. Reading it again costs half as much as opening it, or less.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import NamedTuple

_STATE, _UTIME, _STIME, _THREADS, _RSS = 0, 11, 12, 17, 21  # fields of `stat` after the name
_READ_BYTES, _WRITE_BYTES = 9, 11  # words of `io`
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_ENDED = (b"Z", b"X")

NO_PERMISSION = "no permission to read what this process counts (/proc/PID/io)"
NOT_COUNTED = "the system does not count the disk use of processes (/proc/PID/io)"

NO_WAITS = "the kernel does not count how long threads wait for a core (/proc/PID/schedstat)"
NO_CHILDREN = "the kernel does not list the children of processes (/proc/PID/task/TID/children)"


class Usage(NamedTuple):
    """What a process has used since it began, and what it uses now."""

    cpu_s: float
    rss_bytes: int
    num_threads: int


class ProcFiles:
    """The files of one process.

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
        self.children_problem = ""  # why its children are not known
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

    def usage(self) -> Usage | None:
        """Return its use; None if it has ended and waits to be reaped.

        Raises:
            OSError: It is gone.
        """
        data = os.pread(self._stat, 1024, 0)
        fields = data[data.rindex(b")") + 2 :].split(None, _RSS + 1)
        if fields[_STATE] in _ENDED:
            return None
        return Usage(
            (int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS_PER_S,
            int(fields[_RSS]) * _PAGE_BYTES,
            int(fields[_THREADS]),
        )

    def disk_bytes(self) -> tuple[int, int] | None:
        """Return the bytes that it caused to be read from and written to disks; None: unknown.

        Raises:
            OSError: It is gone.
        """
        if self._io is None:
            return None
        try:
            words = os.pread(self._io, 512, 0).split()
        except PermissionError:  # it can be opened, for example, and read only with CAP_SYS_PTRACE
            self.io_problem = NO_PERMISSION
            os.close(self._io)
            self._io = None
            return None
        return int(words[_READ_BYTES]), int(words[_WRITE_BYTES])

    def core_wait_s(self) -> float | None:
        """Return how long its main thread was ready to run and had no core; None: unknown.

        Raises:
            OSError: It is gone.
        """
        if self.wait_problem:
            return None
        if self._schedule is None:
            try:
                self._schedule = _open(self.pid, "schedstat")
            except OSError:
                self.wait_problem = NO_WAITS
                return None
        return int(os.pread(self._schedule, 128, 0).split()[1]) / 1e9

    def children(self) -> list[int]:
        """Return the children of its main thread.

        Raises:
            OSError: It is gone.
        """
        if self._children is None:
            return []
        data = os.pread(self._children, 65536, 0)
        return list(map(int, data.split())) if data else []

    def close(self) -> None:
        """Close the files."""
        for fd in (self._stat, self._io, self._schedule, self._children):
            if fd is not None:
                os.close(fd)


def _open(pid: int, name: str) -> int:
    return os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)


def children_of_threads(pid: int) -> list[int]:
    """Return the children of all threads of a process; none if it is gone."""
    children: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                children += map(int, file.read().split())
    return children


def pss_bytes(pid: int) -> int:
    """Return the memory of a process, pages shared by N processes counted as 1/N.

    The kernel walks all pages of the process for it.

    Raises:
        OSError: It is gone, is another user's, or the kernel does not say.
    """
    with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        for line in file:
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    return 0  # of a process that ends
