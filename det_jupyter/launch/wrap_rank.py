"""Runs a command as a rank, so that its output is that rank's.

    python -m det_jupyter.launch.wrap_rank [--no-redirect-stdio] RANK [--] COMMAND [ARGUMENT ...]

RANK is a number, or names of environment variables with commas between them, of which the first
that is set has the number: `OMPI_COMM_WORLD_RANK,PMI_RANK`.

In an experiment it points stdout and stderr at the rank's file of the run's folder, and becomes
the command: no process is left between a launcher and the rank, and no pipe. Elsewhere, and with
`--no-redirect-stdio`, it begins every line with `[rank=N] `. Exit codes and signals are
passed on in both cases.

`--with-parent` kills the rank when the launcher ends.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
from contextlib import suppress

from det_jupyter.contract.host.pdeathsig import kill_with_parent
from det_jupyter.launch.computers import RunLayout, find_run
from det_jupyter.launch.workers import (
    RANK_VARIABLES,
    Worker,
    complain,
    journal_failure,
    run_workers,
)

_FLAGS = ("--no-redirect-stdio", "--with-parent")
_USAGE = "wrap_rank [--no-redirect-stdio] RANK [--] COMMAND [ARGUMENT ...]"


def main(words: list[str]) -> int:
    """Run the command, and return its exit code; in an experiment, become the command."""
    flags = set()
    while words and words[0].startswith("-"):
        if words[0] not in _FLAGS:
            return complain(f"wrap_rank: got {words[0]}; usage: {_USAGE}")
        flags.add(words[0])
        words = words[1:]
    if words[1:2] == ["--"]:
        words = [words[0], *words[2:]]
    if len(words) < 2:
        return complain(f"wrap_rank: expected a rank and a command; usage: {_USAGE}")
    try:
        rank = find_rank(words[0])
    except ValueError as error:
        return complain(f"wrap_rank: {error}")
    command = words[1:]
    run = find_run()
    if run is not None and rank >= len(run.homes):  # the run has no such rank
        run = None
    if shutil.which(command[0]) is None:
        _complain_of(run, rank, f"cannot run {command[0]}: there is no such command")
        return 127
    if "--with-parent" in flags:
        kill_with_parent(os.getppid())
    if run is not None and "--no-redirect-stdio" not in flags:
        return become(run, rank, command)
    prefix = b"[rank=%d] " % rank
    worker = Worker(
        rank=rank, argv=tuple(command), env=RANK_VARIABLES, prefix=prefix, closes_stdin=False
    )
    return _end_as(run_workers([worker], "wrap_rank", is_quiet=True))


def find_rank(words: str) -> int:
    """Return the rank that a number or names of variables stand for.

    Raises:
        ValueError: It is neither, or none of the variables is set.
    """
    if words.isdecimal():
        return int(words)
    names = [name.strip() for name in words.split(",")]
    if not all(name.isidentifier() for name in names):
        raise ValueError(
            f"got the rank {words!r}, expected a number from 0, or names of variables"
        )
    for name in names:
        value = os.environ.get(name, "")
        if value.isdecimal():
            return int(value)
        if value:
            raise ValueError(f"the variable {name} is {value!r}, expected a number from 0")
    raise ValueError(
        f"none of the variables {', '.join(names)} is set; start it with a launcher that "
        "sets one, or give the rank as a number"
    )


def become(run: RunLayout, rank: int, command: list[str]) -> int:
    """Replace this process by the command, which prints into the rank's file.

    Returns:
        The exit code, if the command cannot be executed.
    """
    target = os.open(run.folder.output(rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    sys.stdout.flush()
    sys.stderr.flush()
    for descriptor in (1, 2):
        os.dup2(target, descriptor)
    os.close(target)
    # Launchers that are not ours leave the variables of the process that runs the launcher.
    environ = os.environ | RANK_VARIABLES
    if environ.get("RANK") != str(rank):
        environ |= run.variables(rank)
    try:
        os.execvpe(command[0], command, environ)
    except OSError as error:
        hint = ": its first line has to name an interpreter" * (error.errno == errno.ENOEXEC)
        _complain_of(run, rank, f"cannot run {command[0]}: {error.strerror}{hint}")
    return 126


def _complain_of(run: RunLayout | None, rank: int, problem: str) -> None:
    if run is not None:  # the launcher may not notice
        journal_failure(run, rank, f"rank {rank} {problem}")
    complain(f"wrap_rank: rank {rank} {problem}")


def _end_as(code: int) -> int:
    """Return the command's exit code; end by its signal if it was ended by one."""
    if code >= 0:
        return code
    with suppress(OSError):  # SIGKILL
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    return 128 - code  # the signal is blocked, or none that ends a process


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
