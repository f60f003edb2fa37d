"""Launchers of which one starts the ranks of all computers: mpirun, horovodrun.

An experiment runs a launcher on each of its computers. The first starts all ranks, the others
wait until it has ended. The agents of a gang are on one computer so far
(agent/runs/specs.py), so all ranks are started there, and the launchers share a folder.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from det_jupyter.contract.host.paths import write_private
from det_jupyter.contract.host.rundir import STORE_VARIABLE
from det_jupyter.launch.computers import Run, computers_of, count_gpus, find_run
from det_jupyter.launch.options import CommandLine, WrongUsage, number
from det_jupyter.launch.workers import Worker, exit_code, run_workers

_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class Job:
    """The ranks that one launcher starts."""

    num_ranks: int  # on all computers
    index: int = 0  # which computer of the experiment this is; the first starts all
    run: Run | None = None
    ended: Path | None = None  # the exit code of the first launcher, which all of them share


def find_job(line: CommandLine, options: tuple[str, ...]) -> Job:
    """Return what to start: the experiment's slots, or as an option says.

    Raises:
        WrongUsage: The option contradicts the experiment.
        ValueError: This process has no place in its experiment.
    """
    option = next((name for name in options if name in line.known), options[0])
    asked = number(line, option, least=1)
    run = find_run()
    if run is None:
        return Job(asked or max(1, count_gpus()))
    own = computers_of(run)
    num = len(run.homes)
    if asked is not None and asked > num:
        raise WrongUsage(
            f"-{option}: got {asked}, but the trial has {num} slot(s); leave it out, or set "
            f"resources.slots_per_trial: {asked}"
        )
    store = os.environ.get(STORE_VARIABLE)
    ended = Path(f"{store}-launcher") if store and own.num > 1 else None
    return Job(asked or num, own.index, run, ended)


def run_on_chief(name: str, job: Job, argv: tuple[str, ...], variables: dict[str, str]) -> int:
    """Run the program on the first computer, wait for it elsewhere, and return its exit code."""
    if job.index > 0:
        return _wait(job)
    try:
        env = {**_session_variables(), **variables}
        code = exit_code(run_workers([Worker(rank=None, argv=argv, env=env)], name))
    except BaseException:
        _note(job, 1)
        raise
    _note(job, code)
    return code


def _session_variables() -> dict[str, str]:
    """Have Open MPI put its files into a folder of the run: in /tmp they stay if it is killed."""
    store = os.environ.get(STORE_VARIABLE)
    names = ("OMPI_MCA_orte_tmpdir_base", "PRTE_MCA_prte_tmpdir_base")  # of 4, of 5
    return dict.fromkeys(names, str(Path(store).parent)) if store else {}


def _wait(job: Job) -> int:
    """Wait until the launcher of the first computer has ended; the agent ends us if it fails."""
    print("the launcher of the first computer starts all ranks; waiting for it", file=sys.stderr)
    while job.ended is None or not job.ended.exists():
        time.sleep(_LOOK_S)
    return int(job.ended.read_text())


def _note(job: Job, code: int) -> None:
    if job.ended is not None:
        write_private(job.ended, str(code))
