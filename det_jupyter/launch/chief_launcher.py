"""mpirun and horovodrun: the launcher of the first computer starts the ranks of all computers.

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
from det_jupyter.launch.computers import RunLayout, computers_of, count_gpus, find_run
from det_jupyter.launch.options import CommandLine, WrongUsage, number
from det_jupyter.launch.workers import Worker, exit_code, run_workers

_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class RanksToStart:
    """The ranks to start.

    Args:
        num_ranks: Their number on all computers.
        index: Index of this computer; the launcher of the first one starts all ranks.
        run: The run of the experiment.
        ended: File, shared by the launchers, that the first writes its exit code to.
    """

    num_ranks: int
    index: int = 0
    run: RunLayout | None = None
    ended: Path | None = None


def find_job(line: CommandLine, options: tuple[str, ...]) -> RanksToStart:
    """Return the ranks to start: one per slot of the experiment, or as many as an option says.

    Raises:
        WrongUsage: The option contradicts the experiment.
        ValueError: GROUP_RANK is not a computer of the experiment.
    """
    option = next((name for name in options if name in line.known), options[0])
    asked = number(line, option, least=1)
    run = find_run()
    if run is None:
        return RanksToStart(asked or max(1, count_gpus()))
    own = computers_of(run)
    num = len(run.homes)
    if asked is not None and asked > num:
        raise WrongUsage(
            f"-{option}: got {asked}, but the trial has {num} slot(s); leave it out, or set "
            f"resources.slots_per_trial: {asked}"
        )
    store = os.environ.get(STORE_VARIABLE)
    ended = Path(f"{store}-launcher") if store and own.num > 1 else None
    return RanksToStart(asked or num, own.index, run, ended)


def run_on_chief(
    name: str, job: RanksToStart, argv: tuple[str, ...], variables: dict[str, str]
) -> int:
    """Run the program on the first computer, wait for it elsewhere, and return its exit code."""
    if job.index > 0:
        return _wait_for_first(job)
    try:
        env = {**_session_variables(), **variables}
        code = exit_code(run_workers([Worker(rank=None, argv=argv, env=env)], name))
    except BaseException:  # an interrupt too: the other computers would wait
        _write_exit_code(job, 1)
        raise
    _write_exit_code(job, code)
    return code


def _session_variables() -> dict[str, str]:
    """Return variables that make Open MPI use a folder of the run, which is removed with it."""
    store = os.environ.get(STORE_VARIABLE)
    names = ("OMPI_MCA_orte_tmpdir_base", "PRTE_MCA_prte_tmpdir_base")  # Open MPI 4, Open MPI 5
    return dict.fromkeys(names, str(Path(store).parent)) if store else {}


def _wait_for_first(job: RanksToStart) -> int:
    """Wait until the launcher of the first computer has ended.

    If that launcher fails, the agent ends this process.
    """
    print("the launcher of the first computer starts all ranks; waiting for it", file=sys.stderr)
    while job.ended is None or not job.ended.exists():
        time.sleep(_LOOK_S)
    return int(job.ended.read_text())


def _write_exit_code(job: RanksToStart, code: int) -> None:
    if job.ended is not None:
        write_private(job.ended, str(code))
