"""How exit codes are told, and what Python does at the end of a rank."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from signal import Signals
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.rank.endings import (
    ExitedWith,
    check_exit,
    describe_exit,
    finish_failed,
    finish_python,
    leave_copy,
)


@pytest.mark.parametrize(
    ("given", "code", "text"),
    [
        (1, 1, "train.py ended with exit code 1 (sys.exit)"),
        (True, 1, "train.py ended with exit code 1 (sys.exit)"),
        (-1, 255, "train.py ended with exit code 255 (sys.exit)"),
        (300, 44, "train.py ended with exit code 44 (sys.exit)"),
        (143, 143, "train.py ended with exit code 143 (sys.exit), as a shell says SIGTERM"),
        ("no data", 1, "train.py ended with exit code 1 (sys.exit): no data"),
        ("", 1, "train.py ended with exit code 1 (sys.exit): "),
    ],
)
def test_an_exit_that_is_no_success_is_an_error(
    capsys: pytest.CaptureFixture[str], given: object, code: int, text: str
) -> None:
    with pytest.raises(ExitedWith) as caught:
        check_exit("train.py", SystemExit(given))
    assert (str(caught.value), caught.value.code) == (text, code)
    assert capsys.readouterr().err == (f"{given}\n" if isinstance(given, str) else "")


@pytest.mark.parametrize("given", [None, 0, 256])
def test_an_exit_with_0_is_a_success(given: int | None) -> None:
    check_exit("train.py", SystemExit(given))


@pytest.mark.parametrize(
    ("code", "shell_code", "text"),
    [
        (3, 3, "it ended with exit code 3"),
        (126, 126, "it ended with exit code 126: the shell cannot execute a program; `chmod +x`"),
        (127, 127, "it ended with exit code 127: the shell has not found a program; see the out"),
        (128, 128, "it ended with exit code 128"),
        (129, 129, "it ended with exit code 129, as a shell says SIGHUP"),
        (137, 137, "it ended with exit code 137, as a shell says SIGKILL (by hand, or out of mem"),
        (255, 255, "it ended with exit code 255"),
        (-9, 137, "it was killed by SIGKILL (by hand, or out of memory)"),
        (-11, 139, "it was killed by SIGSEGV"),
    ],
)
def test_the_end_of_a_process_is_told_by_its_code_or_signal(
    code: int, shell_code: int, text: str
) -> None:
    error = describe_exit("it", code)
    assert (str(error)[: len(text)], error.code) == (text, shell_code)
    assert error.was_killed is (
        shell_code - 128 in (Signals.SIGHUP, Signals.SIGINT, Signals.SIGKILL, Signals.SIGTERM)
    )


class Left(BaseException):
    """The process has ended."""


class Process:
    """What a process does at its end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[Any] = []
        monkeypatch.setattr(os, "_exit", self._exit)
        monkeypatch.setattr(atexit, "_run_exitfuncs", lambda: self.done.append("handlers"))

    def _exit(self, code: int) -> None:
        self.done.append(code)
        raise Left


@pytest.mark.parametrize(
    ("error", "code", "shown"),
    [
        (None, 0, False),
        (ExitedWith("no", 7), 7, False),
        (ExitedWith("no", 0), 0, False),
        (ValueError("no"), 1, True),
    ],
)
def test_a_copy_that_a_program_has_forked_ends_as_python_would(
    monkeypatch: pytest.MonkeyPatch, error: BaseException | None, code: int, shown: bool
) -> None:
    process, hooks = Process(monkeypatch), list[Any]()
    monkeypatch.setattr(sys, "excepthook", lambda *given: hooks.append(given))
    with pytest.raises(Left):
        leave_copy(error)
    assert process.done == ([code] if error is None else ["handlers", code])
    assert hooks == ([(type(error), error, None)] if shown else [])


def test_a_program_ends_after_its_threads_and_with_its_exit_handlers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = Process(monkeypatch)
    monkeypatch.setattr(threading, "_shutdown", lambda: process.done.append("threads"))
    finish_python()
    assert process.done == ["threads", "handlers"]


@pytest.mark.parametrize(
    ("error", "own_hook", "shown"),
    [
        (ValueError("no"), True, True),
        (ExitedWith("no", 3), True, False),
        (ValueError("no"), False, False),  # Python's own would print a second traceback
    ],
)
def test_a_program_that_failed_is_told_by_its_own_hook_and_its_exit_handlers_run(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, own_hook: bool, shown: bool
) -> None:
    process, hooks, timers = Process(monkeypatch), list[Any](), list[Any]()

    class Timer(SimpleNamespace):
        def __init__(self, seconds: float, function: Any, arguments: list[int]) -> None:
            super().__init__(daemon=False)
            timers.append((self, seconds, function, arguments))

        def start(self) -> None:
            assert self.daemon  # it keeps no process from ending

    monkeypatch.setattr(threading, "Timer", Timer)

    def hook(*given: Any) -> None:
        hooks.append(given[1])
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "excepthook", hook if own_hook else sys.__excepthook__)
    finish_failed(error, 1)
    ((_, seconds, function, arguments),) = timers  # for handlers that hang
    assert (seconds, function, arguments) == (5.0, os._exit, [1])
    assert hooks == ([error] if shown else [])
    assert process.done == ["handlers"]
