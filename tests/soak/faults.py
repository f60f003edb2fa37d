"""Signals for the processes of a private det_jupyter, and what is started under it in a soak.

SIGKILL   ends it at once
SIGTERM   asks it to end
SIGSTOP   freezes it, for up to half a minute; meanwhile there are further faults
"""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.processes import processes_of

ROLES = (
    "master", "agent", "fork server", "rank", "loader", "server", "feeder", "client", "script",
)  # fmt: skip
# How often each is hit: without agent or fork server, everything starts anew, which takes seconds.
_OFTEN = dict.fromkeys(ROLES, 3) | {"agent": 1, "fork server": 1, "script": 1}
SIGNALS = ("SIGKILL", "SIGTERM", "SIGSTOP")
_WEIGHTS = (5, 2, 3)
_FROZEN_S = ((0.05, 1.5), (1.5, 30.0))
_LONG = 0.15  # part of the freezes that are long
# The module that a process runs, by role.
_MODULES = {
    "det_jupyter.master": "master",
    "det_jupyter.agent": "agent",
    "det_jupyter.front.pages": "feeder",
    "jupyter_server": "server",
    "det_jupyter": "client",
}
_ZYGOTE = "det_jupyter.rank.zygote"


@dataclass(frozen=True, slots=True)
class Fault:
    """A signal for a process of some role; one that is frozen goes on `frozen_s` later."""

    role: str
    signal: str
    frozen_s: float = 0.3


def draw(rng: random.Random) -> Fault:
    """Return a fault at random."""
    (role,) = rng.choices(ROLES, list(_OFTEN.values()))
    (name,) = rng.choices(SIGNALS, _WEIGHTS)
    return Fault(role, name, rng.uniform(*_FROZEN_S[rng.random() < _LONG]))


class Faults:
    """Sends signals, and lets frozen processes go on when it is time."""

    def __init__(self, home: Path, rng: random.Random) -> None:
        self._home = home
        self._rng = rng
        self._thawing: list[threading.Timer] = []

    def inject(self, fault: Fault) -> bool:
        """Send the signal to a process of that role; return whether there was one."""
        victims = [each for role, each in roles(processes_of(self._home)) if role == fault.role]
        if not victims:
            return False
        victim = self._rng.choice(victims)
        with suppress(psutil.NoSuchProcess):
            victim.send_signal(signal.Signals[fault.signal])
            if fault.signal == "SIGSTOP":
                timer = threading.Timer(fault.frozen_s, _continue, [victim])
                timer.daemon = True
                timer.start()
                self._thawing.append(timer)
            return True
        return False

    def wait(self) -> None:
        """Wait until no process is frozen any more."""
        while self._thawing:
            self._thawing.pop().join()


def _continue(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGCONT)


def roles(processes: Sequence[psutil.Process]) -> list[tuple[str, psutil.Process]]:
    """Return each process with its role. Forked ones have the fork server's command line."""
    found = []
    for process in sorted(processes, key=lambda process: process.pid):
        with suppress(psutil.NoSuchProcess):
            line = process.cmdline()
            role = next((role for module, role in _MODULES.items() if module in line), "")
            if _ZYGOTE in line:
                role = ("fork server", "rank", "loader")[min(2, _forks_above(process))]
            elif line[-1:] == ["train.py"]:
                role = "script"
            if role:
                found.append((role, process))
    return found


def _forks_above(process: psutil.Process) -> int:
    """Return how many of its ancestors are of the fork server's family."""
    return sum(_ZYGOTE in parent.cmdline() for parent in process.parents())
