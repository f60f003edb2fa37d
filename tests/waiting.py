"""The one way in which tests wait: until it is true, or until nothing moves any more.

What takes 2 s on an idle computer takes a minute on a busy one: no wait has a number of seconds.
It fails when for `PATIENCE_S` no process of the test has started, ended or computed; to wait for a
core counts as computing. Processes of the test are its own, those below it, and those that run
under a home of this run (in a program without pytest: under any home).

`wait_until` and `until`, its coroutine, look by themselves. A wait for a process, a thread, a cell
or an experiment has no limit at all: the timer of the test looks (`set_timer`). What moves for
ever ends at `timeout` of pyproject.toml.
"""

from __future__ import annotations

import asyncio
import os
import signal
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

PATIENCE_S = 90.0  # the product itself waits for half a minute here and there
LOOK_S = 5.0
# Cores that idle processes use at most: a master, agents, and the test that asks them.
BUSY = 0.25

# Of the homes of this run; empty in a program without pytest.
folders: list[Path] = []


class StillError(AssertionError):
    """Nothing moves any more."""


class Stillness:
    """For how long nothing has moved."""

    def __init__(self, patience_s: float = PATIENCE_S, look_s: float = LOOK_S) -> None:
        self._patience_s, self._look_s = patience_s, look_s
        self._used_s: dict[int, float] = {}  # by the process
        self._looked_at = self._moved_at = time.monotonic()

    def check(self, what: str) -> None:
        """Look, if the last look is some seconds ago.

        Raises:
            StillError: Nothing has moved for `patience_s`.
        """
        now = time.monotonic()
        if now - self._looked_at < self._look_s:
            return
        used_s = dict(seconds_of_processes())
        computed_s = sum(used_s.values()) - sum(self._used_s.values())
        if used_s.keys() != self._used_s.keys() or computed_s > BUSY * (now - self._looked_at):
            self._moved_at = now
        used_s[os.getpid()] = _seconds(os.getpid())  # to look computes as well
        self._used_s, self._looked_at = used_s, now
        if now - self._moved_at >= self._patience_s:
            self._moved_at = now  # what cleans up may wait, too
            raise StillError(
                f"waiting until {what}: nothing has moved for {self._patience_s:g} s\n"
                + "\n".join(map(_line, used_s))
            )


def seconds_of_processes() -> Iterator[tuple[int, float]]:
    """Yield the processes of the test, and how long each has computed or waited for a core."""
    own = psutil.Process()
    found = {own, *own.children(recursive=True), *processes_whose_home(_is_of_this_run)}
    for pid in sorted(process.pid for process in found):
        with suppress(OSError, ValueError, psutil.Error):
            yield pid, _seconds(pid)


def _is_of_this_run(home: str) -> bool:
    return not folders or any(Path(home).is_relative_to(folder) for folder in folders)


def _seconds(pid: int) -> float:
    waited_ns = 0
    with suppress(FileNotFoundError):  # it has just ended, or it is no Linux
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


def wait_until(condition: Callable[[], T | None], what: str) -> T:
    """Return the first true value of `condition`; fail when nothing moves any more."""
    for pause_s in _pauses(what):
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


def _pauses(what: str) -> Iterator[float]:
    """Yield how long to pause between two looks: to ask may cost 10 ms CPU, here and elsewhere."""
    stillness, began = Stillness(), time.monotonic()
    while True:
        yield min(0.3, max(0.02, (time.monotonic() - began) / 20))
        stillness.check(what)


def wait_until_gone(*pids: int) -> None:
    """Wait until these processes have ended."""
    wait_until(lambda: all(map(is_gone, pids)), f"{pids} are gone")


def set_timer(item: Any, settings: Any) -> bool | None:
    """Have a test fail when nothing moves any more, or at its timeout; for pytest_timeout."""
    if threading.current_thread() is not threading.main_thread():
        return None  # for pytest_timeout to do it with a thread
    # Later than `wait_until`, which says what it waits for.
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
