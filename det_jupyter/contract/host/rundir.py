"""The folder of one run (one allocation), which the agent and the ranks share.

runs/<allocation id>/
    plan.json            the GangPlan, written before any process is started
    part.json            of a gang on several computers: the ranks that are here
    control              the control page
    evidence             the evidence page
    orders.json          the PassOrders with the latest orders
    journal-<rank>       records, one JSON line each
    output-<rank>        what the rank prints
    stacks-<rank>        stacks of its threads, written when the agent requests them
    stacks-<rank>.<pid>  the same of a process that the rank has forked
    recorder-<rank>      torch's flight recorder as JSON, written when the agent requests it
    step-<rank>          the step page of a rank whose last step the others can save
    copy-<rank>-<0, 1>   memory of the agent for a rank's copies of sharded models
    copies               the agent's socket for requests of such copies of other computers
    wanted/              requests for checkpoints, which the agent fetches to this computer
    unsent/              a file for each checkpoint that is not in its bucket yet
    work/                copy of the context directory: the working directory of the ranks
    kernel-<rank>.json   Jupyter connection file of the rank's kernel
    ranks.json           pids and births, written when the ranks have been started
    exit.json            the GangExited, written when they have exited
    closed               marks a folder that is being deleted: the master has all of it

Standard library only, as launchers use it.

A rank's environment contains its devices, its rank, its checkpoint and the user's secrets. A
process that outlives the run must not inherit them: a master that a script starts would pass them
on to every later run. So BEFORE_VARIABLE contains, as JSON, the former value of each variable that
was changed; null if it was not set.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from det_jupyter.contract.host.paths import private_opener

# Variables by which a process finds its run, even if a script or a launcher has started it: the
# run's folder, the data folder, and how the ranks find each other (`store` and `secret` of
# GangSpec).
RUN_VARIABLE = "DET_JUPYTER_RUN_DIR"
DATA_VARIABLE = "DET_JUPYTER_DATA_DIR"
STORE_VARIABLE = "DET_JUPYTER_STORE"
SECRET_VARIABLE = "DET_JUPYTER_SECRET"
BEFORE_VARIABLE = "DET_JUPYTER_BEFORE"


class _File:
    """Attribute of RunDir: the path of a file with this name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, run: RunDir, kind: type[RunDir]) -> Path:
        return run.path / self._name


@dataclass(frozen=True, slots=True)
class RunDir:
    """The paths of the files of one run."""

    path: Path

    plan = _File("plan.json")
    part = _File("part.json")
    control = _File("control")
    evidence = _File("evidence")
    orders = _File("orders.json")
    ranks = _File("ranks.json")
    exit = _File("exit.json")
    closed = _File("closed")
    wanted = _File("wanted")
    unsent = _File("unsent")
    copies = _File("copies")
    work = _File("work")

    def journal(self, rank: int) -> Path:
        return self.path / f"journal-{rank}"

    def output(self, rank: int) -> Path:
        return self.path / f"output-{rank}"

    def stacks(self, rank: int, forked: int | None = None) -> Path:
        return self.path / (f"stacks-{rank}" if forked is None else f"stacks-{rank}.{forked}")

    def recorder(self, rank: int) -> Path:
        return self.path / f"recorder-{rank}"

    def step(self, rank: int) -> Path:
        return self.path / f"step-{rank}"

    def copy(self, rank: int, number: int) -> Path:
        return self.path / f"copy-{rank}-{number}"

    def connection_file(self, rank: int) -> Path:
        return self.path / f"kernel-{rank}.json"


def runs_root(data_dir: Path) -> Path:
    """Return the folder of all runs."""
    return data_dir / "runs"


def run_dir(data_dir: Path, allocation_id: str) -> RunDir:
    """Return the folder of one run."""
    return RunDir(runs_root(data_dir) / allocation_id)


def append_to_journal(journal: Path, lines: str) -> None:
    """Append whole lines to the journal of a rank, from another process.

    Raises:
        OSError: They cannot be written.
    """
    with open(journal, "ab+", opener=private_opener) as file:
        # The rank may have been killed while it wrote a record.
        if file.tell() and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n":
            lines = f"\n{lines}"
        file.write(lines.encode())


def describe_before(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return the value of BEFORE_VARIABLE for an environment that was changed to `now`.

    >>> describe_before({"A": "1", "B": "2"}, {"A": "1", "B": "3", "C": "4"})
    '{"B": "2", "C": null}'
    """
    names = sorted(before.keys() | now.keys())
    return json.dumps({n: before.get(n) for n in names if before.get(n) != now.get(n)})


def without_run(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment as it was before the run; outside of a run, an equal one.

    >>> without_run({"A": "1", "B": "3", "C": "4", BEFORE_VARIABLE: '{"B": "2", "C": null}'})
    {'A': '1', 'B': '2'}
    """
    found = dict(environ)
    changed: dict[str, str | None] = {}
    with suppress(ValueError, TypeError):  # not the JSON that we wrote
        changed = dict(json.loads(found.pop(BEFORE_VARIABLE, "{}")))
    for name, value in changed.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = value
    return found
