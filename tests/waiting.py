"""How tests wait: until a condition is true, or until their processes make no progress any more.

An action that takes 2 s on an idle computer may take a minute on a busy one, so no wait has a
number of seconds. A wait fails if for `PATIENCE_S` no process of the test has started, ended or
computed; waiting for a core counts as computing. The processes of a test are the test process, its
descendants, and those that run under a home of this test run (in a program without pytest: under
any home).

`wait_until` and the coroutine `until` check the progress themselves. A wait for a process, a
thread, a cell or an experiment has no limit of its own: the timer of the test checks the progress
(`set_timer`). A test with endless progress ends at `timeout` of pyproject.toml.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest_timeout

from tests.homes import is_gone, processes_whose_home

T = TypeVar("T")

PATIENCE_S = 90.0  # det_jupyter itself sometimes waits for half a minute
LOOK_S = 5.0
# Cores that idle processes use at most: a master, agents, and the test that polls them.
BUSY = 0.25

# Folders with the homes of this test run; empty in a program without pytest.
folders: list[Path] = []


class StillError(AssertionError):
    """The processes of the test make no progress any more."""


class Stillness:
    """Measures for how long the processes of the test have made no progress."""

    def __init__(self, patience_s: float = PATIENCE_S, look_s: float = LOOK_S) -> None:
        self._patience_s, self._look_s = patience_s, look_s
        self._used_s: dict[int, float] = {}  # by pid: CPU seconds at the last check
        self._looked_at = self._moved_at = time.monotonic()

    def check(self, what: str) -> None:
        """Check the progress, if the last check is some seconds ago.

        Raises:
            StillError: There was no progress for `patience_s`.
        """
        now = time.monotonic()
        if now - self._looked_at < self._look_s:
            return
        used_s = dict(seconds_of_processes())
        computed_s = sum(used_s.values()) - sum(self._used_s.values())
        if used_s.keys() != self._used_s.keys() or computed_s > BUSY * (now - self._looked_at):
            self._moved_at = now
        used_s[os.getpid()] = _seconds(os.getpid())  # without the computation of this check
        self._used_s, self._looked_at = used_s, now
        if now - self._moved_at >= self._patience_s:
            self._moved_at = now  # a clean-up that follows may wait, too
            raise StillError(
                f"waiting until {what}: nothing has moved for {self._patience_s:g} s\n"
                + "\n".join(map(_line, used_s))
            )


def seconds_of_processes() -> Iterator[tuple[int, float]]:
    """Yield the processes of the test, and for how long each has computed or waited for a core."""
    own = psutil.Process()
    found = {own, *own.children(recursive=True), *processes_whose_home(_is_of_this_run)}
    for pid in sorted(process.pid for process in found):
        with suppress(OSError, ValueError, psutil.Error):
            yield pid, _seconds(pid)


def _is_of_this_run(home: str) -> bool:
    return not folders or any(Path(home).is_relative_to(folder) for folder in folders)


def _seconds(pid: int) -> float:
    waited_ns = 0
    with suppress(FileNotFoundError):  # the process has just ended, or this is not Linux
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):  # the thread has just ended
                waited_ns += int(
                    Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[1]
                )
    return sum(psutil.Process(pid).cpu_times()[:2]) + waited_ns / 1e9


def _line(pid: int) -> str:
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        return f"{pid} {process.status()}: {' '.join(process.cmdline())[:100]}"
    return f"{pid} has ended"


def wait_until(condition: Callable[[], T | None], what: str, *, most_s: float = 0.5) -> T:
    """Return the first true value of `condition`; fail if there is no progress any more.

    Args:
        condition: It is called again and again.
        what: The condition in words.
        most_s: The longest pause between two calls; short if what is awaited does not last.
    """
    for pause_s in _pauses(what, most_s):
        if value := condition():
            return value
        time.sleep(pause_s)
    raise AssertionError("unreachable")


async def until(condition: Callable[[], T | None], what: str) -> T:
    """Return the first true value of `condition`, as `wait_until` does."""
    for pause_s in _pauses(what):
        if value := condition():
            return value
        await asyncio.sleep(pause_s)
    raise AssertionError("unreachable")


def _pauses(what: str, most_s: float = 0.5) -> Iterator[float]:
    """Yield pauses between calls of a condition, which may cost 10 ms CPU here and elsewhere.

    Calls in twice as short pauses cost a tenth of the CPU time of all e2e tests ([m] 49, not 44 s
    for 25 of them), and let none end earlier.
    """
    stillness, began = Stillness(), time.monotonic()
    while True:
        yield min(most_s, max(0.05, (time.monotonic() - began) / 8))
        stillness.check(what)


def wait_until_executed(*processes: subprocess.Popen[bytes]) -> None:
    """Wait until /proc has the environment and the memory of programs that then sleep.

    `Popen` returns before: the kernel closes its pipe first.
    """

    def sleeps(pid: int) -> bool:
        is_sleeping = psutil.Process(pid).status() == psutil.STATUS_SLEEPING
        return is_sleeping and Path(f"/proc/{pid}/environ").read_bytes() != b""

    pids = [process.pid for process in processes]
    wait_until(lambda: all(map(sleeps, pids)), f"{pids} have begun")


def wait_until_gone(*pids: int) -> None:
    """Wait until these processes have ended."""
    wait_until(lambda: all(map(is_gone, pids)), f"{pids} are gone")


def set_timer(item: Any, settings: Any) -> bool | None:
    """Make a test fail without progress, or at its timeout. A hook of pytest_timeout."""
    if threading.current_thread() is not threading.main_thread():
        return None  # pytest_timeout then uses a thread
    # Later than `wait_until`, whose error names the awaited condition.
    stillness, began = Stillness(PATIENCE_S + 2 * LOOK_S), time.monotonic()

    def look(*_: object) -> None:
        if time.monotonic() - began >= settings.timeout:
            pytest_timeout.timeout_sigalrm(item, settings)
        try:
            if not pytest_timeout.is_debugging():
                stillness.check(f"{item.name} ends")
        finally:
            signal.setitimer(signal.ITIMER_REAL, LOOK_S)

    def cancel() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    item.cancel_timeout = cancel  # called by pytest_timeout
    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, LOOK_S)
    return True
