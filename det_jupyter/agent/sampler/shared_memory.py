"""PSS of processes, read as often as a small share of a core allows.

The kernel walks all pages of a process to compute its PSS: milliseconds for a gigabyte. So one
process is read at a time, with pauses in proportion to what it cost, and no source more often than
every 10 s.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence

from det_jupyter.agent.sampler.procfs import pss_bytes

_SHARE = 0.0005  # of a core
_AGAIN_S = 10.0
NO_PERMISSION = "no permission to read the memory map of this process"
NO_ROLLUP = "the kernel does not sum up memory maps (/proc/PID/smaps_rollup)"

Members = Mapping[str, Sequence[int]]  # source -> pids


class SharedMemory:
    """PSS of sources, each a group of processes.

    Args:
        read: Returns the PSS of a process.
        cpu_time: Returns the seconds of a CPU that this thread has used.
    """

    def __init__(
        self,
        read: Callable[[int], int] = pss_bytes,
        cpu_time: Callable[[], float] = time.thread_time,
    ) -> None:
        self._read = read
        self._cpu_time = cpu_time
        self._left: list[tuple[str, list[int]]] = []  # of this round, the last first
        self._total = 0  # of the source that is being read
        self._round_at = 0.0
        self._next_at = 0.0
        self.problems: dict[str, str] = {}  # source -> why it has no values

    def step(self, members: Members, now: float) -> dict[str, float]:
        """Read one process if it is time; return the sums of the sources that are complete."""
        if now < self._next_at:
            return {}
        began = self._cpu_time()
        found = self._next_of_round(members, now)
        self._next_at = now + (self._cpu_time() - began) / _SHARE
        return dict([found]) if found else {}

    def _next_of_round(self, members: Members, now: float) -> tuple[str, int] | None:
        """Read the next process of this round; return its source and sum if it is the last."""
        if not self._left and now >= self._round_at:
            self._round_at = now + _AGAIN_S
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
        except PermissionError:
            self.problems[source] = NO_PERMISSION
        except FileNotFoundError:
            if os.path.exists(f"/proc/{pid}"):
                self.problems[source] = NO_ROLLUP
        except OSError:  # it has ended
            pass
        return 0
