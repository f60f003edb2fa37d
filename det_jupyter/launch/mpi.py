"""Starts the ranks of a program that uses MPI, by mpirun.

    python -m det_jupyter.launch.mpi [[OPTION ...] --] PROGRAM [ARGUMENT ...]

PROGRAM is a script, `-m MODULE`, or any program. In an experiment there is a rank for each slot.
Elsewhere there are N ranks with `-np N`; by default one for each GPU, or one without GPUs. All
other options are mpirun's. Unless an option requests it, ranks are not bound to cores, since they
have threads.

Python is run through mpi4py, where that is installed: a rank that fails then aborts the others.
Without it the rank waits in MPI_Finalize for the others, which wait for it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from det_jupyter.contract.values.entrypoints import is_python
from det_jupyter.launch.chief_launcher import RanksToStart, find_job, run_on_chief
from det_jupyter.launch.options import find_program, parse_command_line, rank_command, wrapped
from det_jupyter.launch.workers import complain

_NAME = "mpi"
_HOW = "apt-get install openmpi-bin"
_RANKS = "OMPI_COMM_WORLD_RANK,PMIX_RANK,PMI_RANK"
_BINDS = ("bind", "map-by", "map_by")


def main(words: list[str]) -> int:
    try:
        line = parse_command_line(words, {"np": 1, "n": 1})
        job = find_job(line, ("np", "n"))
        command = rank_command(line.target, any_program=True)
        program = find_program("mpirun", _HOW)
    except ValueError as error:
        return complain(f"{_NAME}: {error}")
    command = aborting(command)
    argv = mpirun_command(program, job, line.others, command, is_open=_is_open_mpi(program))
    return run_on_chief(_NAME, job, argv, _root_variables())


def mpirun_command(
    program: str,
    job: RanksToStart,
    options: tuple[str, ...],
    command: tuple[str, ...],
    *,
    is_open: bool,
) -> tuple[str, ...]:
    """Return the command line of mpirun, which starts each rank through wrap_rank.

    Args:
        is_open: Whether mpirun is Open MPI's; else it has MPICH's options.
    """
    own = ["-np" if is_open else "-n", str(job.num_ranks)]
    if is_open and not any(part in word for word in options for part in _BINDS):
        own += ["--bind-to", "none"]
    if is_open and "--oversubscribe" not in options:
        own += ["--oversubscribe"]  # the number of ranks is checked here, not by mpirun
    if is_open and "--prefix" not in options:
        # If mpirun is called by its path, it puts its own folder first into PATH, and `python3`
        # would be the system's, not that of this environment. Called as `mpirun` from PATH it does
        # not.
        own += ["--noprefix"]
    return (program, *own, *options, *wrapped(_RANKS), *command)


def aborting(command: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command of a rank; if it is Python, its failure ends all other ranks."""
    python, *rest = command
    found = shutil.which(python)
    is_ours = found is not None and Path(found).parent == Path(sys.executable).parent
    if not (is_ours and is_python(python) and rest and find_spec("mpi4py")):
        return command
    if (rest[0].startswith("-") and rest[0] != "-m") or rest[:2] == ["-m", "mpi4py"]:
        return command
    return (python, "-m", "mpi4py", *rest)


def _is_open_mpi(program: str) -> bool:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return "Open MPI" in said.stdout or "open-mpi" in said.stdout


def _root_variables() -> dict[str, str]:
    """Return the variables that Open MPI requires to run as root, as is usual in containers."""
    names = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
    return dict.fromkeys(names, "1") if os.geteuid() == 0 else {}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
