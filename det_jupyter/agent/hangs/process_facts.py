"""Reads from /proc what the threads of a rank do, for stall_watch.py. Linux only.

It works for a process that is stopped, or whose interpreter cannot run. Threads of runtimes, which
wake by themselves, are left out: those of gloo, NCCL and torch by their names, this package's by
the evidence page. The main thread takes 0.05 ms to read, all threads 0.02 ms each; so the others
and the descendants are read only while a gang makes no progress.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass

from det_jupyter.agent.hangs.stall_watch import OthersSample

# How the names of threads begin that wake by themselves, or wait for other ranks.
_OF_RUNTIMES = (
    "gloo", "pt_gloo", "pt_nccl", "pt_tcpstore", "NCCL", "nccl", "ZMQbg", "cuda-", "cuda0",
    "CUDA", "python-tensor",
)  # fmt: skip
_MOST_DESCENDANTS = 200
# Where the kernel waits for the program of a file system such as sshfs or gcsfuse: that is a disk,
# though signals can end the wait.
_OF_FUSE = "request_wait_answer"


@dataclass(frozen=True, slots=True)
class ThreadFacts:
    """The state of a thread and its counts since its start; state D: it waits for a disk."""

    state: str
    cpu_s: float
    core_wait_s: float
    wakes: int

    @classmethod
    def read(cls, pid: int, thread: int) -> ThreadFacts:
        """Return the facts of a thread; the main thread has the number of its process.

        Raises:
            OSError: It has ended.
        """
        folder = f"/proc/{pid}/task/{thread}"
        stat = _read(f"{folder}/stat")
        state = stat[stat.rindex(b")") + 2 :][:1].decode()
        if state == "S" and kernel_wait(pid, thread) == _OF_FUSE:
            state = "D"
        cpu_ns = wait_ns = 0
        with suppress(OSError, ValueError):
            cpu_ns, wait_ns = map(int, _read(f"{folder}/schedstat").split()[:2])
        wakes = 0
        for line in _read(f"{folder}/status").splitlines():
            if line.startswith(b"voluntary_ctxt_switches"):
                wakes = int(line.split()[1])
        return cls(state, cpu_ns / 1e9, wait_ns / 1e9, wakes)


@dataclass(frozen=True, slots=True)
class OtherFacts:
    """The other threads of a process in sum, and its descendants."""

    sample: OthersSample
    children: tuple[int, ...]  # pids


def read_others(pid: int, own_threads: Collection[int]) -> OtherFacts:
    """Return the sums over the threads that are not the main one, nor of a runtime or ours.

    Raises:
        OSError: The process has ended.
    """
    cpu_s, wakes = 0.0, 0
    for name in os.listdir(f"/proc/{pid}/task"):
        thread = int(name)
        if thread == pid or thread in own_threads:
            continue
        with suppress(OSError, ValueError):  # it ends just now
            comm = _read(f"/proc/{pid}/task/{name}/comm").decode(errors="replace")
            if not comm.startswith(_OF_RUNTIMES):
                facts = ThreadFacts.read(pid, thread)
                cpu_s, wakes = cpu_s + facts.cpu_s + facts.core_wait_s, wakes + facts.wakes
    children = tuple(descendants(pid))
    child_cpu_s = sum(map(_cpu_s, children))
    return OtherFacts(OthersSample(cpu_s=cpu_s, wakes=wakes, child_cpu_s=child_cpu_s), children)


def descendants(pid: int) -> Iterator[int]:
    """Yield the pids of a process's children, of theirs, and so on; the first 200."""
    unread, num = [pid], 0
    while unread and num < _MOST_DESCENDANTS:
        parent = unread.pop()
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{parent}/task"):
                with suppress(OSError):
                    for child in _read(f"/proc/{parent}/task/{thread}/children").split():
                        num += 1
                        unread.append(int(child))
                        yield int(child)


def _cpu_s(pid: int) -> float:
    """Return how long a process's threads have used a core, or waited for one."""
    total = 0.0
    with suppress(OSError, ValueError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError, ValueError):
                cpu_ns, wait_ns = _read(f"/proc/{pid}/task/{thread}/schedstat").split()[:2]
                total += (int(cpu_ns) + int(wait_ns)) / 1e9
    return total


def is_traced(pid: int) -> bool:
    """Return whether a debugger traces a process."""
    with suppress(OSError):
        for line in _read(f"/proc/{pid}/status").splitlines():
            if line.startswith(b"TracerPid:"):
                return int(line.split()[1]) != 0
    return False


def catches(pid: int, signal: int) -> bool:
    """Return whether a process has a handler for this signal; without one it would end it."""
    with suppress(OSError, ValueError):
        for line in _read(f"/proc/{pid}/status").splitlines():
            if line.startswith(b"SigCgt:"):
                return bool(int(line.split()[1], 16) >> (signal - 1) & 1)
    return False


def kernel_wait(pid: int, thread: int | None = None) -> str:
    """Return the function of the kernel that a thread waits in; "" if it is not told.

    Args:
        pid: The process.
        thread: None: its main thread.
    """
    with suppress(OSError):
        return _read(f"/proc/{pid}/task/{thread or pid}/wchan").decode(errors="replace").strip("0")
    return ""


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 65536)
    finally:
        os.close(descriptor)
