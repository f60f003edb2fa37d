"""Runs a command of the user's as a child process, and waits for it.

The child has this process's output, folder and environment. SIGTERM and SIGINT are passed on to
it. It is in this rank's process group, so it dies with the rank.
"""

from __future__ import annotations

import errno
import os
import shlex
import signal
import subprocess
from collections.abc import Callable
from types import FrameType
from typing import Any

from det_jupyter.entrypoints import Command
from det_jupyter.errors import ConfigError
from det_jupyter.words import shortened
from det_jupyter.worker.endings import describe_exit
from det_jupyter.worker.work import ProcessRun

_SHOWN = 120  # characters of a command
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class CommandRun(ProcessRun):
    """One run of a command."""

    def __init__(self, command: Command, *, steps: Callable[[], int], first: int) -> None:
        super().__init__(steps=steps, first=first)
        self._argv = command.argv
        self._child: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Run it to its end.

        Raises:
            ConfigError: It cannot be started.
            ExitedWith: It ended with an exit code, or by a signal.
        """
        try:
            self._child = subprocess.Popen(self._argv, stdin=subprocess.DEVNULL)
        except OSError as error:
            raise ConfigError(_why_not_started(self._argv[0], error)) from None
        for number in _PASSED_ON:
            signal.signal(number, self._pass_on)
        if code := self._child.wait():
            raise describe_exit(f"the command `{shown(self._argv)}`", code)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        if self._child is not None:
            self._child.send_signal(number)

    def live(self) -> dict[str, Any]:
        return {"command": list(self._argv), "process": self._child}


def shown(argv: tuple[str, ...]) -> str:
    """Return a command as its author has written it, cut if it is long."""
    text = argv[2] if argv[:2] == ("sh", "-c") and len(argv) == 3 else shlex.join(argv)
    return shortened(text, _SHOWN)


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
