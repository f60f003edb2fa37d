"""What a fork does to be a master, agent or fork server (tests/forked_programs.py).

It imports no pytest, which would take 60 ms CPU in each fork.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from tests.fork_source import COMMAND_LINE, REPOSITORY, run_and_exit, show

_PROGRAMS = {  # and the modules with their `main`
    "det_jupyter.master": "det_jupyter.master.__main__",
    "det_jupyter.agent": "det_jupyter.agent.__main__",
    "det_jupyter.rank.zygote": "det_jupyter.rank.zygote",
}


def run_program(stdin: int, output: int, words: list[str], path: str | None) -> int:
    """Run a program in the fork; `path` is the PYTHONPATH of what it starts."""
    _set_streams(stdin, output)
    sys.path.remove(REPOSITORY)
    fork_programs(path)
    return _main_of([sys.executable, "-m", *words])()


def run_master() -> int:
    """Run the master's program, whose command line the fork has, with the standard streams."""
    fork_programs(os.environ.get("PYTHONPATH"))
    return _main_of([sys.executable, "-m", "det_jupyter.master", *sys.argv[1:]])()


def fork_programs(path: str | None) -> None:
    """Fork our programs from this process, too; `path` is the PYTHONPATH of all others."""
    if path is not None:
        os.environ["PYTHONPATH"] = path
    subprocess.Popen = _ForkOrProcess  # type: ignore[assignment,misc]


def _set_streams(stdin: int, output: int) -> None:
    for number, file in enumerate((stdin, output, output)):
        os.dup2(file, number)


def _main_of(line: Sequence[str]) -> Callable[[], int]:
    """Set the command line, and return the function of its program."""
    show(COMMAND_LINE, line)
    (module,) = set(_PROGRAMS).intersection(line)
    sys.argv = list(line[line.index(module) :])
    main: Callable[[], int] = import_module(_PROGRAMS[module]).main
    return main


class _ForkOrProcess(subprocess.Popen):  # type: ignore[type-arg]
    """A child: a fork if it is one of our programs and this process has one thread."""

    def __init__(self, args: Any, **options: Any) -> None:
        is_ours = args[0] == sys.executable and set(_PROGRAMS).intersection(args)
        if not is_ours or len(os.listdir("/proc/self/task")) > 1:
            super().__init__(args, **options)
            return
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            try:
                _become(args, **options)
            finally:
                os._exit(1)
        self.args, self.pid, self.returncode = args, pid, None
        self.stdin = self.stdout = self.stderr = None
        self._child_created = True
        self._waitpid_lock = threading.Lock()


def _become(
    line: Sequence[str],
    *,
    stdin: Any,
    stdout: Any,
    stderr: Any,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
    preexec_fn: Callable[[], None] | None = None,
    start_new_session: bool = False,
    process_group: int | None = None,
) -> NoReturn:
    """Do in the child what Popen does between fork and exec, then run the program.

    It closes the parent's files by their numbers: their objects stay in the frames of its callers.
    """
    atexit._clear()
    logging.root.handlers.clear()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if start_new_session:
        os.setsid()
    if process_group is not None:
        os.setpgid(0, process_group)
    assert stderr == stdout
    assert stdin == subprocess.DEVNULL or stdin.name == os.devnull
    output = stdout if isinstance(stdout, int) else stdout.fileno()
    _set_streams(os.open(os.devnull, os.O_RDONLY), output)
    for number in set(map(int, os.listdir("/proc/self/fd"))) - {0, 1, 2, *pass_fds}:
        with suppress(OSError):  # that of the list
            os.close(number)
    os.chdir(cwd)
    if env is not None:
        os.environ.clear()
        os.environ.update(env)
    if preexec_fn is not None:
        preexec_fn()
    run_and_exit(_main_of(line))
