"""Starts the ranks of a script that uses Horovod, by horovodrun.

    python -m det_jupyter.launch.horovod [[OPTION ...] --] SCRIPT [ARGUMENT ...]

In an experiment there is a rank for each slot. Elsewhere there are N ranks with `-np N`; by
default one for each GPU, or one without GPUs. `--autohorovod` starts a single rank without
Horovod. All other options are horovodrun's.
"""

from __future__ import annotations

import sys

from det_jupyter.launch.chief_launcher import RanksToStart, find_job, run_on_chief
from det_jupyter.launch.computers import Computers
from det_jupyter.launch.options import find_program, parse_command_line, rank_command, wrapped
from det_jupyter.launch.torch_distributed import start_ranks
from det_jupyter.launch.workers import complain

_NAME = "horovod"
_HOW = "pip install horovod[pytorch]"
_RANKS = "HOROVOD_RANK,OMPI_COMM_WORLD_RANK,PMI_RANK"


def main(words: list[str]) -> int:
    try:
        line = parse_command_line(words, {"np": 1, "num_proc": 1, "autohorovod": 0})
        job = find_job(line, ("np", "num_proc"))
        command = rank_command(line.target)
        is_alone = "autohorovod" in line.known and job.num_ranks == 1
        program = "" if is_alone else find_program("horovodrun", _HOW)
    except ValueError as error:
        return complain(f"{_NAME}: {error}")
    if is_alone:
        return start_ranks(_NAME, Computers(num_ranks=1, run=job.run), command, {})
    argv = horovodrun_command(program, job, line.others, command)
    return run_on_chief(_NAME, job, argv, {"USE_HOROVOD": "1"})


def horovodrun_command(
    program: str, job: RanksToStart, options: tuple[str, ...], command: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the command line of horovodrun, which starts each rank through wrap_rank."""
    return (
        program,
        *("-np", str(job.num_ranks)),
        *("-H", f"localhost:{job.num_ranks}"),
        *options,
        *wrapped(_RANKS),
        *command,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
