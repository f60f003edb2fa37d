"""How a program of the user's ends: with an exit code that is told, and as Python itself would."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from contextlib import suppress
from signal import Signals

from det_jupyter.errors import DetError

_PATIENCE_S = 5.0  # for the exit handlers of a program that has failed


class ExitedWith(DetError):
    """A program or command ended with an exit code that is not 0.

    Args:
        message: What ended, and how.
        code: The exit code, from 1 to 255.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def check_exit(name: str, error: SystemExit) -> None:
    """Return if `sys.exit` was called with what means success.

    Raises:
        ExitedWith: It was called with another exit code, or with a message.
    """
    code = error.code
    if code is None:
        return
    if isinstance(code, int):
        if code & 0xFF:
            ended = ExitedWith(
                f"{name} ended with exit code {code & 0xFF} (sys.exit)", code & 0xFF
            )
            raise ended.with_traceback(error.__traceback__) from None
        return
    sys.stderr.write(f"{code}\n")  # as Python does
    ended = ExitedWith(f"{name} ended with exit code 1 (sys.exit): {code}", 1)
    raise ended.with_traceback(error.__traceback__) from None


def describe_exit(name: str, code: int) -> ExitedWith:
    """Return the error for a child process that ended with this code, or minus its signal."""
    if code < 0:
        return ExitedWith(f"{name} was killed by {_signal(-code)}", 128 - code)
    hint = ""
    if code == 127:
        hint = ": the shell has not found a program; see the output for its name"
    elif code == 126:
        hint = ": the shell cannot execute a program; `chmod +x` may be missing"
    elif code > 128:
        hint = f" (as a shell says {_signal(code - 128)})"
    return ExitedWith(f"{name} ended with exit code {code}{hint}", code)


def _signal(number: int) -> str:
    with suppress(ValueError):
        name = Signals(number).name
        return f"{name} (by hand, or out of memory)" if name == "SIGKILL" else name
    return f"signal {number}"


def finish_python() -> None:
    """Do what Python does after the last statement: wait for threads, call the exit handlers."""
    threading._shutdown()  # type: ignore[attr-defined]  # has no public name
    atexit._run_exitfuncs()


def finish_failed(code: int) -> None:
    """Call the exit handlers after a failure; a handler that hangs ends the process."""
    timer = threading.Timer(_PATIENCE_S, os._exit, [code])
    timer.daemon = True
    timer.start()
    with suppress(BaseException):  # the failure is told already
        atexit._run_exitfuncs()
