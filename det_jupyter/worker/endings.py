"""The end of a user's program: its exit code as an error, and what Python does at the end."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from contextlib import suppress
from signal import Signals
from typing import NoReturn

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

    @property
    def was_killed(self) -> bool:
        """Whether another process or the system has killed it, or all that it waited for."""
        return self.code - 128 in (Signals.SIGKILL, Signals.SIGTERM)


def check_exit(name: str, error: SystemExit) -> None:
    """Return if `sys.exit` was called with what means success.

    Raises:
        ExitedWith: It was called with another exit code, or with a message.
    """
    code = error.code
    if code is None:
        return
    if isinstance(code, int):
        if code := code & 0xFF:
            said = f"{name} ended with exit code {code} (sys.exit){_as_signal(code)}"
            ended = ExitedWith(said, code)
            raise ended.with_traceback(error.__traceback__) from None
        return
    sys.stderr.write(f"{code}\n")  # as Python does
    ended = ExitedWith(f"{name} ended with exit code 1 (sys.exit): {code}", 1)
    raise ended.with_traceback(error.__traceback__) from None


def describe_exit(name: str, code: int) -> ExitedWith:
    """Return the error for a child process that ended with this code, or minus its signal."""
    if code < 0:
        return ExitedWith(f"{name} was killed by {_signal(-code)}", 128 - code)
    hint = _as_signal(code)
    if code == 127:
        hint = ": the shell has not found a program; see the output for its name"
    elif code == 126:
        hint = ": the shell cannot execute a program; `chmod +x` may be missing"
    return ExitedWith(f"{name} ended with exit code {code}{hint}", code)


def _as_signal(code: int) -> str:
    """Return the signal that an exit code of a shell or launcher stands for; "" if none."""
    is_signal = code - 128 in list(Signals)  # 255 is -1
    return f", as a shell says {_signal(code - 128)}" if is_signal else ""


def _signal(number: int) -> str:
    with suppress(ValueError):
        name = Signals(number).name
        return f"{name} (by hand, or out of memory)" if name == "SIGKILL" else name
    return f"signal {number}"


def finish_python() -> None:
    """Do what Python does after the last statement: wait for threads, call the exit handlers."""
    threading._shutdown()  # type: ignore[attr-defined]  # has no public name
    atexit._run_exitfuncs()


def leave_copy(error: BaseException | None) -> NoReturn:
    """End a process that the program has forked itself (`os.fork`), as Python would."""
    code = 0
    if isinstance(error, ExitedWith):
        code = error.code
    elif error is not None:
        code = 1
        sys.excepthook(type(error), error, error.__traceback__)
    if error is not None:  # else `finish_python` has called them
        atexit._run_exitfuncs()
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def finish_failed(error: BaseException, code: int) -> None:
    """Call the program's own hook and exit handlers after a failure; for 5 s, if they hang."""
    timer = threading.Timer(_PATIENCE_S, os._exit, [code])
    timer.daemon = True
    timer.start()
    with suppress(BaseException):  # the failure is reported already
        if sys.excepthook is not sys.__excepthook__ and not isinstance(error, ExitedWith):
            sys.excepthook(type(error), error, error.__traceback__)
    with suppress(BaseException):
        atexit._run_exitfuncs()
