"""Reads from /proc what the threads and processes of a rank do, for stall_watch.py. Linux only.

It also works for a process that is stopped or whose interpreter cannot run, and does not disturb
it. Threads of runtimes, which wake by themselves, are left out: those of gloo, NCCL and torch are
known by their names, and this package's are listed in the evidence page. The main thread takes
0.05 ms to read, other threads 0.02 ms each; so these and the descendants are read only while a
gang makes no progress.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from det_jupyter.agent.hangs.growth import Growth
from det_jupyter.agent.hangs.stall_watch import OthersSample

# Prefixes of the names of threads that wake by themselves, or wait for other ranks.
_OF_RUNTIMES = (
    b"gloo", b"pt_gloo", b"pt_nccl", b"pt_tcpstore", b"NCCL", b"nccl", b"ZMQbg", b"cuda-",
    b"cuda0", b"CUDA", b"python-tensor",
)  # fmt: skip
_MOST_DESCENDANTS = 200
_MOST_BYTES = 1 << 16  # most bytes read of a file
# The kernel function that waits for the program of a FUSE file system, such as sshfs or gcsfuse.
# It counts as waiting for a disk (state D), although signals can end the wait.
_OF_FUSE = "request_wait_answer"
# Numbers of the system calls read, readv, recvfrom, recvmsg: they return when data have come.
_READS = {
    "x86_64": frozenset({b"0", b"19", b"45", b"47"}),
    "aarch64": frozenset({b"63", b"65", b"207", b"212"}),
}.get(platform.machine(), frozenset())
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class ThreadFacts:
    """The state of a thread and its counts since its start; state D: it waits for a disk.

    `reads` is the file descriptor that it waits to read from, without a time limit; else None.
    """

    state: str
    cpu_s: float
    core_wait_s: float
    wakes: int
    reads: bytes | None = None

    @classmethod
    def read(cls, pid: int, thread: int) -> ThreadFacts:
        """Return the facts of a thread; the main thread has the number of its process.

        Raises:
            OSError: It has ended.
        """
        folder = f"/proc/{pid}/task/{thread}"
        wakes = 0
        state = _stat(f"{folder}/stat")[0].decode()
        if state == "S" and kernel_wait(pid, thread) == _OF_FUSE:
            state = "D"
        cpu_s, core_wait_s = _scheduled(folder)
        for line in _read(f"{folder}/status").splitlines():
            if line.startswith(b"voluntary_ctxt_switches"):
                wakes = int(line.split()[1])
        reads = None
        with suppress(OSError):  # a kernel without it
            words = _read(f"{folder}/syscall").split()
            reads = words[1] if words[0] in _READS else None
        return cls(state, cpu_s, core_wait_s, wakes, reads)


class OthersReader:
    """Reads the other threads of a rank and its descendants, as counts that only grow.

    Args:
        run_folder: Files directly in it do not count, since this package writes them.
    """

    def __init__(self, run_folder: str | None = None) -> None:
        self._growth = Growth(run_folder)
        self._pid = 0
        self._last: tuple[dict[int, float], dict[int, float]] = {}, {}
        self._cpu_s = self._core_wait_s = 0.0
        self.children: tuple[int, ...] = ()  # as last read

    def read(self, pid: int, own_threads: Collection[int]) -> OthersSample:
        """Return the sums over the descendants and the other threads, except runtimes' and ours.

        Raises:
            OSError: The process has ended.
        """
        self.children = tuple(descendants(pid))
        # By thread; 0 is the sum of all descendants, which keeps the CPU time of those that end.
        cpu_s, core_wait_s = {0: _ended_cpu_s(pid)}, dict[int, float]()
        for thread in {*_threads(pid)} - {pid, *own_threads}:
            folder = f"/proc/{pid}/task/{thread}"
            with suppress(OSError):  # it ends just now
                if not _read(f"{folder}/comm").startswith(_OF_RUNTIMES):
                    cpu_s[thread], core_wait_s[thread] = _scheduled(folder)
        at_disk = False
        for child in self.children:
            with suppress(OSError, ValueError):
                at_disk |= state_of(child) == "D"
                cpu_s[0] += _ended_cpu_s(child)
                for thread in _threads(child):
                    used_s, core_wait_s[thread] = _scheduled(f"/proc/{child}/task/{thread}")
                    cpu_s[0] += used_s
        if pid == self._pid:
            self._cpu_s += _grown(cpu_s, self._last[0])
            self._core_wait_s += _grown(core_wait_s, self._last[1])
        self._pid, self._last = pid, (cpu_s, core_wait_s)
        num_bytes, num_printed = self._growth.read(pid, self.children)
        return OthersSample(
            cpu_s=self._cpu_s,
            core_wait_s=self._core_wait_s,
            num_bytes=num_bytes,
            num_printed=num_printed,
            at_disk=at_disk,
        )


def _grown(now: Mapping[int, float], before: Mapping[int, float]) -> float:
    """Return by how much the values have grown; new ones have grown from 0.

    >>> _grown({1: 4.0, 7: 0.5}, {1: 3.0, 6: 5.0})
    1.5
    """
    return sum(max(0.0, value - before.get(key, 0.0)) for key, value in now.items())


def _scheduled(folder: str) -> tuple[float, float]:
    """Return how long a thread has used a core, and how long it has waited for one."""
    with suppress(OSError, ValueError):
        cpu_ns, wait_ns = _read(f"{folder}/schedstat").split()[:2]
        return int(cpu_ns) / 1e9, int(wait_ns) / 1e9
    return 0.0, 0.0


def _threads(pid: int) -> list[int]:
    return [int(name) for name in os.listdir(f"/proc/{pid}/task")]


def _stat(path: str) -> list[bytes]:
    """Return the fields of a `stat` file after the name, which may contain spaces."""
    stat = _read(path)
    return stat[stat.rindex(b")") + 2 :].split()


def _ended_cpu_s(pid: int) -> float:
    """Return the CPU time of children that have ended, and that the process has reaped."""
    fields = _stat(f"/proc/{pid}/stat")
    return (int(fields[13]) + int(fields[14])) / _TICKS_PER_S


def state_of(pid: int) -> str:
    """Return the state of a process's main thread, as in /proc; T or t: it is stopped.

    Raises:
        OSError: It has ended.
    """
    return _stat(f"/proc/{pid}/stat")[0].decode()


def descendants(pid: int) -> Iterator[int]:
    """Yield the pids of a process's children, of theirs, and so on; the first 200."""
    unread, num = [pid], 0
    while unread and num < _MOST_DESCENDANTS:
        parent = unread.pop()
        with suppress(OSError):
            for thread in _threads(parent):
                with suppress(OSError):
                    for child in _read(f"/proc/{parent}/task/{thread}/children").split():
                        num += 1
                        unread.append(int(child))
                        yield int(child)


def is_traced(pid: int) -> bool:
    """Return whether a debugger traces a process."""
    with suppress(OSError):
        for line in _read(f"/proc/{pid}/status").splitlines():
            if line.startswith(b"TracerPid:"):
                return int(line.split()[1]) != 0
    return False


def kernel_wait(pid: int, thread: int) -> str:
    """Return the kernel function that a thread waits in; "" if the kernel does not show it."""
    with suppress(OSError):
        return _read(f"/proc/{pid}/task/{thread}/wchan").decode(errors="replace").strip("0")
    return ""


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _MOST_BYTES)
    finally:
        os.close(descriptor)
