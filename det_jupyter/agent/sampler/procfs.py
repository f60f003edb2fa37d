"""One process, read from Linux's /proc.

A file of /proc that stays open belongs to its process: after the end of that, reading fails, even
if another process has the pid. Reading it again costs half as much as opening it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass

_STATE, _UTIME, _STIME, _THREADS, _RSS = 0, 11, 12, 17, 21  # fields of `stat` after the name
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_ENDED = (b"Z", b"X")


@dataclass(frozen=True, slots=True)
class ProcessReading:
    """What a process has used."""

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
        self._stat = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        self._io: int | None = None

    def read(self) -> ProcessReading | None:
        """Return its use; None if it has ended and waits to be reaped.

        Raises:
            OSError: It is gone.
        """
        data = os.pread(self._stat, 1024, 0)
        fields = data[data.rindex(b")") + 2 :].split()
        if fields[_STATE] in _ENDED:
            return None
        return ProcessReading(
            cpu_s=(int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS_PER_S,
            rss_bytes=int(fields[_RSS]) * _PAGE_BYTES,
            num_threads=int(fields[_THREADS]),
        )

    def disk_bytes(self) -> tuple[int, int] | None:
        """Return the bytes that it caused to be read from and written to disks; None: unknown."""
        if self.io_problem:
            return None
        try:
            if self._io is None:
                self._io = os.open(f"/proc/{self.pid}/io", os.O_RDONLY | os.O_CLOEXEC)
            lines = os.pread(self._io, 512, 0).split(b"\n")
        except ProcessLookupError:
            return None
        except PermissionError:
            self.io_problem = "no permission to read what this process counts (/proc/PID/io)"
            return None
        except OSError:
            self.io_problem = "the system does not count the disk use of processes (/proc/PID/io)"
            return None
        counts = dict(line.split(b": ") for line in lines if line)
        return int(counts[b"read_bytes"]), int(counts[b"write_bytes"])

    def close(self) -> None:
        """Close the files."""
        for fd in (self._stat, self._io):
            if fd is not None:
                os.close(fd)


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


def children_of(pid: int, *, of_all_threads: bool) -> list[int]:
    """Return the children of a process: of its main thread, or of all its threads.

    Raises:
        OSError: It is gone, or the kernel does not list children.
    """
    threads = os.listdir(f"/proc/{pid}/task") if of_all_threads else [str(pid)]
    children: list[int] = []
    for thread in threads:
        with (
            suppress(ProcessLookupError),
            open(f"/proc/{pid}/task/{thread}/children", "rb") as file,
        ):
            children += map(int, file.read().split())
    return children
