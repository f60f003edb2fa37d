"""Signals to the processes of a private det_jupyter, including those of a soak.

SIGKILL   ends it at once
SIGTERM   requests it to end
SIGSTOP   freezes it for up to half a minute, during which further faults happen

A *cell* is a role, the kind of experiment that its process trains, and a signal. A long soak has
to hit each of CELLS, so a cell that was not hit yet is more likely to be drawn.
"""

from __future__ import annotations

import os
import random
import re
import signal
import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from tests.processes import processes_below

ROLES = (
    "master", "agent", "agent elsewhere", "lease watch", "fork server", "rank", "loader",
    "script", "server", "reader", "client",
)  # fmt: skip
# The kinds that processes of a role train; processes of other roles serve several experiments.
_TRAINED = {
    "rank": ("class", "search", "halving", "script", "command", "elastic"),
    "loader": ("class", "search", "halving", "elastic"),
    "script": ("command",),
}
# Weights of the roles: without agent or fork server, everything starts anew, which takes seconds.
_OFTEN = {
    "master": 3, "agent": 1, "agent elsewhere": 1, "lease watch": 1, "fork server": 1, "rank": 6,
    "loader": 5, "script": 2, "server": 2, "reader": 2, "client": 3,
}  # fmt: skip
SIGNALS = ("SIGKILL", "SIGTERM", "SIGSTOP")
_WEIGHTS = dict(zip(SIGNALS, (5, 2, 3), strict=True))
_FIRST = 10  # factor of the weight of a cell that was not hit yet
_FROZEN_S = ((0.05, 1.5), (1.5, 30.0))
_LONG = 0.15  # fraction of the freezes that are long
# By role: the module that its process runs.
_MODULES = {
    "det_jupyter.master": "master",
    "det_jupyter.agent": "agent",
    "det_jupyter.agent.runs.lease_watch": "lease watch",
    "det_jupyter.reader": "reader",
    "det_jupyter.starter": "starter",
    "jupyter_server": "server",
    "det_jupyter": "client",
}
_ZYGOTE = "det_jupyter.rank.zygote"
_OUTPUT = re.compile(r".*/runs/(\d+)\.[^/]*/output-\d+")
_BATCH = re.compile(rb"^batch (\d+):", re.MULTILINE)

Cell = tuple[str, str, str]  # role, the kind that it trains ("" for all other roles), signal
CELLS: list[Cell] = [
    (role, kind, name) for role in ROLES for kind in _TRAINED.get(role, ("",)) for name in SIGNALS
]


@dataclass(frozen=True, slots=True)
class Fault:
    """A signal for a process of some role; a frozen process continues `frozen_s` later."""

    role: str
    signal: str
    frozen_s: float = 0.3
    kind: str = ""  # the kind that it trains; "": any
    trained: int = 0  # least batches of a rank in its run; 0: also one that is starting


def draw(rng: random.Random, hits: Counter[Cell], excluded: Collection[str] = ()) -> Fault:
    """Return a random fault.

    Args:
        rng: The source of randomness.
        hits: How often each cell was hit.
        excluded: Roles that are not hit.
    """
    cells = [cell for cell in CELLS if cell[0] not in excluded]
    weights = [
        _OFTEN[role]
        / len(_TRAINED.get(role, "1"))
        * _WEIGHTS[name]
        * (1 if hits[role, kind, name] else _FIRST)
        for role, kind, name in cells
    ]
    ((role, kind, name),) = rng.choices(cells, weights)
    return Fault(role, name, rng.uniform(*_FROZEN_S[rng.random() < _LONG]), kind)


@dataclass(frozen=True, slots=True)
class Target:
    """A process that a fault may hit."""

    role: str
    kind: str
    process: psutil.Process


class Faults:
    """Sends signals, and continues frozen processes when it is time.

    Args:
        home: The home whose processes may be hit.
        kinds: The kind of each experiment, by its number.
        rng: Chooses among the processes of a role.
    """

    def __init__(self, home: Path, kinds: Mapping[int, str], rng: random.Random) -> None:
        self._home = home
        self._kinds = kinds
        self._rng = rng
        self._thawing: list[threading.Timer] = []
        # By experiment: batches in which its ranks were ended; None: before the first of a run.
        self._ended_in: dict[int, list[int | None]] = {}

    def targets(self) -> list[Target]:
        """Return all present processes."""
        return [
            Target(
                role, self._kinds.get(_experiment_of(each), "") if role in _TRAINED else "", each
            )
            for role, each in roles(processes_below(self._home))
        ]

    def inject(self, fault: Fault) -> Fault | None:
        """Send the signal to a process of that role; return the fault with its kind, if any."""
        targets = [each for each in self.targets() if each.role == fault.role]
        if fault.kind:
            targets = [each for each in targets if each.kind == fault.kind]
        if fault.trained:
            targets = [each for each in targets if len(_batches(each.process)) >= fault.trained]
        is_end = fault.role == "rank" and fault.signal != "SIGSTOP"
        if is_end:
            targets = [each for each in targets if not self._would_end_trial(each.process)]
        if not targets:
            return None
        target = self._rng.choice(targets)
        if is_end:
            ended_in = next(reversed(_batches(target.process)), None)
            self._ended_in.setdefault(_experiment_of(target.process), []).append(ended_in)
        with suppress(psutil.NoSuchProcess):
            target.process.send_signal(signal.Signals[fault.signal])
            if fault.signal == "SIGSTOP":
                timer = threading.Timer(fault.frozen_s, _continue, [target.process])
                timer.daemon = True
                timer.start()
                self._thawing.append(timer)
            return replace(fault, kind=target.kind)
        return None

    def _would_end_trial(self, process: psutil.Process) -> bool:
        """Return whether this may be a third death in the same batch, which ends a trial.

        A rank may be in the batch after that of its last line.
        """
        batches = _batches(process)

        def may_be_here(ended_in: int | None) -> bool:
            if ended_in is None:  # in the first batch of that run; no run begins before it since
                return len(batches) < 3
            return not batches or abs(ended_in - batches[-1]) < 2

        last = self._ended_in.get(_experiment_of(process), [])[-2:]
        return len(last) == 2 and all(map(may_be_here, last))

    def wait(self) -> None:
        """Wait until no process is frozen any more."""
        while self._thawing:
            self._thawing.pop().join()


def _continue(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGCONT)


def _experiment_of(process: psutil.Process) -> int:
    """Return the experiment whose output the process writes; 0 if it writes none yet."""
    with suppress(OSError):
        if found := _OUTPUT.fullmatch(os.readlink(f"/proc/{process.pid}/fd/1")):
            return int(found[1])
    return 0


def _batches(process: psutil.Process) -> list[int]:
    """Return the batches that a rank has begun in its run; each begins with a line."""
    with suppress(OSError):
        return [
            int(each) for each in _BATCH.findall(Path(f"/proc/{process.pid}/fd/1").read_bytes())
        ]
    return []


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
            elif role == "agent" and "--credentials" in line:
                role = "agent elsewhere"
            if role:
                found.append((role, process))
    return found


def _forks_above(process: psutil.Process) -> int:
    """Return how many ancestors of a process belong to the fork server."""
    return sum(_ZYGOTE in parent.cmdline() for parent in process.parents())
