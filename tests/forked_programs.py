"""Master, agent and fork server as forks of a process that has loaded what they import.

    test ──asks──> source ──forks──> master ──forks──> agent ──forks──> fork server

Each of these starts the next one by `subprocess.Popen` while it has one thread, so a fork does the
same for a tenth of the CPU time ([m] 4 s for all three). Whatever is started later, or by another
program, is a new process, as for a user.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import pytest

from det_jupyter import connection
from det_jupyter.contract.host import daemons, paths
from det_jupyter.contract.host.rundir import without_run
from tests import nodes
from tests.fork_source import COMMAND_LINE, REPOSITORY, run_and_exit, show, with_compat
from tests.forks import PYTHON_PATH, Fork, torch_source

_PROGRAMS = {  # and the modules with their `main`
    "det_jupyter.master": "det_jupyter.master.__main__",
    "det_jupyter.agent": "det_jupyter.agent.__main__",
    "det_jupyter.rank.zygote": "det_jupyter.rank.zygote",
}


@pytest.fixture(scope="package", autouse=True)
def _programs_are_forks() -> Iterator[None]:
    """Fork the masters and agents that the tests of a folder start, if its conftest has this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "spawn_master", spawn_master)
        patch.setattr(nodes, "spawn_agent", spawn_agent)
        yield


def spawn_master() -> Fork | subprocess.Popen[bytes]:
    """Start a master as `daemons.spawn_master` does, which this calls if modules lie elsewhere."""
    if os.environ.get("PYTHONPATH") not in (PYTHON_PATH, with_compat(PYTHON_PATH)):
        return daemons.spawn_master()
    with open(os.devnull, "rb") as nothing:
        master = _start(
            ["det_jupyter.master", "serve"],
            paths.master_output(), nothing.fileno(), without_run(os.environ),
        )  # fmt: skip
    threading.Thread(target=master.wait, daemon=True).start()  # otherwise it stays as a zombie
    return master


def spawn_agent(
    options: list[str], log: Path, environment: Mapping[str, str], stdin: bytes
) -> Fork:
    """Start an agent as `nodes.spawn_agent` does."""
    read, write = os.pipe()
    with os.fdopen(read), os.fdopen(write, "wb") as pipe:
        pipe.write(stdin)
        return _start(["det_jupyter.agent", *options], log, read, environment)


def _start(words: list[str], log: Path, stdin: int, environment: Mapping[str, str]) -> Fork:
    with open(log, "ab", opener=paths.private_opener) as output:
        return torch_source().start(
            f"{__name__}:run_program", words,
            environment=environment, descriptors=[stdin, output.fileno()],
        )  # fmt: skip


def run_program(stdin: int, output: int, words: list[str]) -> int:
    """Run a program in the fork."""
    _set_streams(stdin, output)
    sys.path.remove(REPOSITORY)
    subprocess.Popen = _ForkOrProcess  # type: ignore[assignment,misc]
    return _main_of([sys.executable, "-m", *words])()


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
    stdin: int,
    stdout: Any,
    stderr: Any,
    cwd: Path,
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
    assert (stdin, stderr) == (subprocess.DEVNULL, stdout)
    output = stdout if isinstance(stdout, int) else stdout.fileno()
    _set_streams(os.open(os.devnull, os.O_RDONLY), output)
    for number in set(map(int, os.listdir("/proc/self/fd"))) - {0, 1, 2, *pass_fds}:
        with suppress(OSError):  # that of the list
            os.close(number)
    os.chdir(cwd)
    if preexec_fn is not None:
        preexec_fn()
    run_and_exit(_main_of(line))
