"""Counts the gangs of a trial that live at one time, over all machines.

A rank is found by the control page that it has mapped; its path contains the allocation's id.
Stopped ranks do not count, as they cannot act.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.machines.machine import Machine

_CONTROL = re.compile(rb"/runs/([^/\s]+)/control\b")
_NO_RANKS = (b"det_jupyter.agent", b"det_jupyter.master")
_PERIOD_S = 0.2
_ALIVE = "RSD"


@dataclass(slots=True)
class Life:
    """When ranks of a gang were seen, in seconds since the watch began, and on which machines."""

    first_s: float
    last_s: float
    machines: set[str] = field(default_factory=set)


class GangWatch(threading.Thread):
    """Examines the processes of the machines several times a second, until it is stopped."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        super().__init__(daemon=True)
        self.lives: dict[str, Life] = {}  # by allocation
        self.overlaps_s = 0.0  # seconds for which two gangs were alive at once
        self.num_samples = 0
        self.frozen: set[str] = set()  # names of the machines that are frozen now
        self._machines = machines
        # By pid: the allocation, "" for a process that is no rank.
        self._gangs: dict[int, str] = {}
        self._no_ranks: set[int] = set()
        self._is_over = threading.Event()
        self._began = time.monotonic()

    @property
    def now_s(self) -> float:
        """Seconds since the watch began."""
        return time.monotonic() - self._began

    def run(self) -> None:
        before_s = self.now_s
        while not self._is_over.wait(_PERIOD_S):
            now_s = self.now_s
            alive = self.sample(now_s)
            if len(alive) > 1:
                self.overlaps_s += now_s - before_s
            before_s = now_s

    def stop(self) -> None:
        self._is_over.set()
        self.join()

    def sample(self, now_s: float) -> set[str]:
        """Return the allocations that have running ranks."""
        self.num_samples += 1
        alive: set[str] = set()
        for machine in self._machines:
            if machine.name in self.frozen:
                continue
            for pid in machine.pids():
                gang = self._gang_of(pid)
                if gang is None or _state(pid) not in _ALIVE:
                    continue
                alive.add(gang)
                life = self.lives.setdefault(gang, Life(now_s, now_s))
                life.last_s = now_s
                life.machines.add(machine.name)
        return alive

    def _gang_of(self, pid: int) -> str | None:
        if pid in self._no_ranks:
            return None
        if pid not in self._gangs:
            try:
                if any(word in Path(f"/proc/{pid}/cmdline").read_bytes() for word in _NO_RANKS):
                    self._no_ranks.add(pid)
                    return None
                found = _CONTROL.search(Path(f"/proc/{pid}/maps").read_bytes())
            except OSError:
                return None
            if found is None:  # a fork server, or a rank that has not mapped it yet
                return None
            self._gangs[pid] = found[1].decode()
        return self._gangs[pid]


def _state(pid: int) -> str:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "X"
    return text.rpartition(")")[2].split()[0]
