"""What goes wrong in a soak: a signal for one of the processes of a private det_jupyter."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.processes import processes_of

ROLES = ("master", "agent", "fork server", "rank", "loader")
SIGNALS = ("SIGKILL", "SIGTERM", "SIGSTOP")
_WEIGHTS = (5, 2, 3)
_FROZEN_S = (0.05, 1.5)


@dataclass(frozen=True, slots=True)
class Fault:
    """A signal for a process of some role; one that is frozen goes on `frozen_s` later."""

    role: str
    signal: str
    frozen_s: float = 0.3


def draw(rng: random.Random) -> Fault:
    """Return a fault at random."""
    (name,) = rng.choices(SIGNALS, _WEIGHTS)
    return Fault(rng.choice(ROLES), name, rng.uniform(*_FROZEN_S))


def inject(home: Path, fault: Fault, rng: random.Random) -> bool:
    """Send the signal to one of the processes of that role; return whether there was one."""
    victims = [process for role, process in roles(processes_of(home)) if role == fault.role]
    if not victims:
        return False
    victim = rng.choice(victims)
    with suppress(psutil.NoSuchProcess):
        victim.send_signal(signal.Signals[fault.signal])
        if fault.signal == "SIGSTOP":
            time.sleep(fault.frozen_s)
            victim.send_signal(signal.SIGCONT)
        return True
    return False


def roles(processes: Sequence[psutil.Process]) -> list[tuple[str, psutil.Process]]:
    """Return each process with its role. Forked ones have the fork server's command line."""
    found = []
    for process in sorted(processes, key=lambda process: process.pid):
        with suppress(psutil.NoSuchProcess):
            line = process.cmdline()
            if "det_jupyter.master" in line:
                found.append(("master", process))
            elif "det_jupyter.agent" in line:
                found.append(("agent", process))
            elif "det_jupyter.rank.zygote" in line:
                found.append((ROLES[2:][min(2, _forks_above(process))], process))
    return found


def _forks_above(process: psutil.Process) -> int:
    """Return how many of its ancestors are of the fork server's family."""
    return sum("det_jupyter.rank.zygote" in parent.cmdline() for parent in process.parents())
