"""The end of a rank: exit codes as errors, the record of a failure, and Python's exit handlers."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from signal import Signals
from types import CodeType
from typing import NoReturn

from det_jupyter.contract.messages import RankSpec
from det_jupyter.contract.run.journal import RankFailure
from det_jupyter.contract.run.output_lines import last_lines
from det_jupyter.contract.values.text import signal_name
from det_jupyter.core import failures
from det_jupyter.core.peer_errors import is_lost_peer
from det_jupyter.core.tracebacks import CodeNames, Explanation
from det_jupyter.errors import DetError

_SENT_BY_OTHERS = (Signals.SIGKILL, Signals.SIGTERM, Signals.SIGHUP, Signals.SIGINT)
_LAST_LINES = 10  # lines of output that the record of an error includes
_PATIENCE_S = 5.0  # time for the exit handlers of a program that has failed


class ExitedWith(DetError):
    """A program or command ended with an exit code that is not 0."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code

    @property
    def was_killed(self) -> bool:
        """Whether a signal from another process ended it, also by its exit code."""
        return self.code - 128 in _SENT_BY_OTHERS


def check_exit(name: str, error: SystemExit) -> None:
    """Check the argument of `sys.exit`.

    Raises:
        ExitedWith: The argument is an exit code that is not 0, or a message.
    """
    given = 0 if error.code is None else error.code
    if isinstance(given, int):
        code = given & 0xFF
        said = f"{name} ended with exit code {code} (sys.exit){_as_signal(code)}"
    else:
        sys.stderr.write(f"{given}\n")  # as Python does
        code, said = 1, f"{name} ended with exit code 1 (sys.exit): {given}"
    if code:
        raise ExitedWith(said, code).with_traceback(error.__traceback__) from None


def describe_exit(name: str, code: int) -> ExitedWith:
    """Return the error of a child process by its exit code, or minus the number of its signal."""
    if code < 0:
        return ExitedWith(f"{name} was killed by {_signal(-code)}", 128 - code)
    hint = _as_signal(code)
    if code == 127:
        hint = ": the shell has not found a program; see the output for its name"
    elif code == 126:
        hint = ": the shell cannot execute a program; `chmod +x` may be missing"
    return ExitedWith(f"{name} ended with exit code {code}{hint}", code)


def _as_signal(code: int) -> str:
    """Return a note on the signal that an exit code 128 + N stands for; "" if for none."""
    is_signal = code - 128 in list(Signals)  # 255 is -1
    return f", as a shell says {_signal(code - 128)}" if is_signal else ""


def _signal(number: int) -> str:
    name = signal_name(number)
    return f"{name} (by hand, or out of memory)" if name == "SIGKILL" else name


def explain(names: CodeNames, error: BaseException, code: CodeType | None = None) -> Explanation:
    """Return the explanation of an error; only its type if its own methods raise."""
    explanation = failures.explain(names, error, code)
    # Python prints no traceback for sys.exit either.
    return replace(explanation, traceback="") if isinstance(error, ExitedWith) else explanation


def make_failure(
    spec: RankSpec, error: BaseException, explanation: Explanation, *, trained: int, printed: str
) -> RankFailure:
    """Return the record of a failure; wait a moment first if another rank has caused it."""
    message, was_killed = explanation.error, False
    if isinstance(error, ExitedWith):
        message, was_killed = _with_last_line(message, printed), error.was_killed
    shown = _last_printed(printed, explanation) + explanation.traceback
    return failures.failure_of(
        error,
        replace(explanation, error=message, traceback=shown),
        rank=spec.place.rank,
        is_echo=spec.place.world_size > 1 and is_lost_peer(error),
        is_early=trained == 0 and spec.plan.checkpoint is None and not was_killed,
        batch_size=failures.batch_size_of(spec.plan, spec.place.rank),
    )


def _with_last_line(message: str, output: str) -> str:
    """Return the message with the last line of the output, which often contains the cause."""
    line = last_lines(output, 1, most=300).strip()
    return message if not line or line in message else f"{message}; it printed at last: {line}"


def _last_printed(output: str, explanation: Explanation) -> str:
    """Return the last lines of the output, unless the explanation contains them."""
    text = last_lines(output, _LAST_LINES, most=300)
    if not text.strip() or text in explanation.printed:
        return ""
    return f"It printed at last:\n{text}\n\n"


def finish_python() -> None:
    """Wait for threads and call the exit handlers, as Python does after the last statement."""
    threading._shutdown()  # type: ignore[attr-defined]  # has no public name
    atexit._run_exitfuncs()


def leave_copy(error: BaseException | None) -> NoReturn:
    """Exit from a process that the program itself has forked (`os.fork`), as Python would."""
    code = 0
    if isinstance(error, ExitedWith):
        code = error.code
    elif error is not None:
        code = 1
        sys.excepthook(type(error), error, error.__traceback__)
    if error is not None:  # without an error, `finish_python` has called the handlers
        atexit._run_exitfuncs()
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def finish_failed(error: BaseException, code: int) -> None:
    """Call the program's excepthook and exit handlers after a failure, for at most 5 s."""
    timer = threading.Timer(_PATIENCE_S, os._exit, [code])
    timer.daemon = True
    timer.start()
    with suppress(BaseException):  # the failure is reported already
        if sys.excepthook is not sys.__excepthook__ and not isinstance(error, ExitedWith):
            sys.excepthook(type(error), error, error.__traceback__)
    with suppress(BaseException):  # as above
        atexit._run_exitfuncs()
