"""The work of a rank whose entrypoint is a program or a command; functions.py has functions.

A Python program is run as `__main__` of this process, as `python` would run it, with torch loaded:

    python3 train.py --epochs 3     sys.argv as given, sys.path[0] the script's folder
    python3 folder_or_zip           its `__main__`
    python3 -m package.module       sys.path[0] the current folder

torch and its dependencies are imported already, so a module of the context directory with the name
of such a package would not be imported. Such a module is refused (entrypoint.py).

Any other command is a child process with this process's output, folder and environment. Signals
such as SIGTERM are sent on to it. It is in this rank's process group, so it is killed with the
rank.
"""

from __future__ import annotations

import builtins
import errno
import logging
import os
import random
import runpy
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

import torch

from det_jupyter.contract.run.control_page import ControlPage
from det_jupyter.contract.trial.context_dir.python_modules import describe_syntax_error
from det_jupyter.contract.values.entrypoints import Command, Program
from det_jupyter.contract.values.text import listed, shortened
from det_jupyter.errors import ConfigError
from det_jupyter.rank.endings import check_exit, describe_exit, finish_python
from det_jupyter.rank.entrypoint import MOST_NAMES, put_first

_MAX_CHARACTERS = 120  # characters of a command
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def reported_steps(page: ControlPage, world_size: int) -> int:
    """Return the steps completed that ranks have reported on the control page; 0 if none."""
    return max((page.batch_of(rank) or 0 for rank in range(world_size)), default=0)


class ProcessRun:
    """Base of programs and commands, whose steps are those that their ranks report.

    Args:
        steps: Returns the steps completed since the beginning of the trial, as reported.
        first: Steps completed before this run.
    """

    trial = None  # there is no trial class

    def __init__(self, *, steps: Callable[[], int], first: int) -> None:
        self._steps = steps
        self._first = first

    @property
    def steps_completed(self) -> int:
        """Steps since the beginning of the trial that its ranks have reported."""
        return max(self._first, self._steps())

    @property
    def trained(self) -> int:
        return self.steps_completed - self._first


class ProgramRun(ProcessRun):
    """One run of a program."""

    def __init__(self, program: Program, *, steps: Callable[[], int], first: int) -> None:
        super().__init__(steps=steps, first=first)
        self._program = program

    def run(self) -> None:
        """Run the program to its end, including its exit handlers.

        Raises:
            ExitedWith: The program called `sys.exit` with an exit code.
            BaseException: Any error that the program raised.
        """
        name = f"python -m {self._program.target}" if self._program.is_module else ""
        try:
            self._run_main()
        except SystemExit as error:
            check_exit(name or self._program.target, error)
        finish_python()

    def _run_main(self) -> None:
        target = self._program.target
        sys.argv = [target, *self._program.args]
        main = ModuleType("__main__")
        vars(main).update({"__builtins__": builtins, "__annotations__": {}})
        sys.modules["__main__"] = main
        # The fork server's handlers: with them the program's `logging.basicConfig` would do
        # nothing.
        logging.root.handlers.clear()
        logging.root.setLevel(logging.WARNING)
        _draw_seeds()
        if self._program.is_module:
            put_first(Path.cwd())
            runpy._run_module_as_main(target)  # type: ignore[attr-defined]  # what `-m` calls
            return
        path = Path(os.path.abspath(target))
        _check_there(path, target)
        if path.is_dir() or path.suffix in (".zip", ".pyz"):
            sys.path.insert(0, str(path))
            runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
            return
        put_first(Path(os.path.realpath(path)).parent)
        vars(main).update({"__file__": str(path), "__cached__": None})
        exec(_compiled(path, target), vars(main))

    def live(self) -> dict[str, Any]:
        variables = vars(sys.modules["__main__"]).items()
        return {name: value for name, value in variables if not name.startswith("__")}


def _draw_seeds() -> None:
    """Seed the generators anew, since all forked processes begin with the same state."""
    random.seed()
    torch.seed()
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()


def _compiled(path: Path, target: str) -> CodeType:
    try:
        return compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise ConfigError(f"entrypoint: {describe_syntax_error(error, target)}") from None
    except ValueError as error:  # null bytes
        raise ConfigError(f"entrypoint: {target} cannot be parsed as Python: {error}") from None


def _check_there(path: Path, target: str) -> None:
    if path.exists():
        if not os.access(path, os.R_OK):
            raise ConfigError(f"entrypoint: {target} cannot be read; its mode forbids it")
        return
    there = sorted(p.name for p in path.parent.glob("*.py")) if path.parent.is_dir() else []
    raise ConfigError(
        f"entrypoint: there is no {target} in the folder that ranks work in (Python files "
        f"there: {listed(there, most=MOST_NAMES) or 'none'}); the context directory has to "
        "contain it"
    )


class CommandRun(ProcessRun):
    """One run of a command."""

    def __init__(self, command: Command, *, steps: Callable[[], int], first: int) -> None:
        super().__init__(steps=steps, first=first)
        self._argv = command.argv
        self._child: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Run the command to its end.

        Raises:
            ConfigError: The command cannot be started.
            ExitedWith: The command ended with an exit code, or by a signal.
        """
        try:
            self._child = subprocess.Popen(self._argv, stdin=subprocess.DEVNULL)
        except OSError as error:
            raise ConfigError(_why_not_started(self._argv[0], error)) from None
        for number in _PASSED_ON:
            signal.signal(number, self._pass_on)
        if code := self._child.wait():
            raise describe_exit(f"the command `{command_text(self._argv)}`", code)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        if self._child is not None:
            self._child.send_signal(number)

    def live(self) -> dict[str, Any]:
        return {"command": list(self._argv), "process": self._child}


def command_text(argv: tuple[str, ...]) -> str:
    """Return a command as it was written, shortened."""
    text = argv[2] if argv[:2] == ("sh", "-c") and len(argv) == 3 else shlex.join(argv)
    return shortened(text, _MAX_CHARACTERS)


def _why_not_started(program: str, error: OSError) -> str:
    if error.errno == errno.ENOENT and os.sep not in program:
        return (
            f"entrypoint: the command {program!r} is not there: no program of that name is in "
            f"PATH; install it, or write ./{program} if it is a file of the context directory"
        )
    if error.errno == errno.ENOENT and os.path.exists(program):
        return f"entrypoint: {program} names an interpreter that is not there in its first line"
    if error.errno == errno.ENOENT:
        return f"entrypoint: {program} is not there in the folder that the trial works in"
    if error.errno == errno.EACCES:
        return f"entrypoint: {program} may not be executed; `chmod +x {program}` allows it"
    if error.errno == errno.ENOEXEC:
        return (
            f"entrypoint: {program} is no program; if it is a script, its first line has to name "
            "an interpreter: #!/bin/sh"
        )
    if error.errno == errno.E2BIG:
        return f"entrypoint: {program} cannot be started: its arguments or variables are too long"
    return f"entrypoint: {program} cannot be started: {error.strerror}"
