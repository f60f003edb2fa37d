"""When the watcher of a lease ends an agent's processes; the process itself: test_lease.py."""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from det_jupyter.agent.runs import lease_watch
from det_jupyter.agent.runs.lease_watch import EXPIRED, watch
from det_jupyter.agent.starting.rank_processes import has_ended
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.locks import take_lock
from det_jupyter.contract.host.rundir import RUN_VARIABLE, run_dir
from tests.waiting import wait_until, wait_until_executed


class Watched:
    """A lease that is watched in a thread, at a clock that the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.num_ended = 0
        self.was_held: bool | None = None
        self.agent, self._watcher = socket.socketpair()
        monkeypatch.setattr(lease_watch, "since_boot", lambda: self.now)
        monkeypatch.setattr(lease_watch, "_CHECK_S", 0.001)
        monkeypatch.setattr(lease_watch, "_AGAIN_S", 0.002)
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        self.was_held = watch(self._watcher, self._end)

    def _end(self) -> None:
        self.num_ended += 1

    def send(self, data: bytes) -> None:
        """Send what the agent does."""
        self.agent.sendall(data)

    def receive(self) -> bytes:
        """Return the next line of the watcher."""
        line = b""
        while not line.endswith(b"\n"):
            line += self.agent.recv(1)
        return line

    def close(self) -> bool | None:
        """Let the agent exit; return whether the lease was held."""
        self.agent.close()
        self._thread.join()
        self._watcher.close()
        return self.was_held


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    watched = Watched(monkeypatch)
    yield watched
    watched.close()


def test_a_lease_that_is_renewed_ends_nothing(watched: Watched) -> None:
    for until_s in ("110.0", "120.0"):
        watched.send(f"{until_s}\n".encode())
        assert watched.receive() == f"{until_s}\n".encode()
        watched.now += 10.0  # exactly to its end
    assert watched.close() is True
    assert watched.num_ended == 0


def test_the_newest_of_several_times_holds_and_a_line_may_arrive_in_parts(
    watched: Watched,
) -> None:
    watched.send(b"101.0\n130")
    assert watched.receive() == b"101.0\n"
    watched.send(b".0\n")
    assert watched.receive() == b"130.0\n"
    watched.send(b"131.0\n140.0\n")
    assert watched.receive() == b"140.0\n"


def test_a_lease_that_ended_is_told_once_and_kills_until_it_is_renewed(watched: Watched) -> None:
    watched.send(b"110.0\n")
    watched.receive()
    watched.now = 110.5
    assert watched.receive() == EXPIRED + b"\n"
    wait_until(lambda: watched.num_ended >= 3, "it kills again")
    watched.send(b"130.0\n")
    assert watched.receive() == b"130.0\n"
    watched.now = 131.0
    assert watched.receive() == EXPIRED + b"\n"


@pytest.mark.parametrize("line", ["", f"{math.inf}\n"])
def test_without_ranks_nothing_is_ended(watched: Watched, line: str) -> None:
    watched.send(b"110.0\n")
    watched.receive()
    watched.send(f"{math.inf}\n{line}".encode())
    assert watched.receive() == b"inf\n"
    watched.now = 10**9
    assert watched.close() is False
    assert watched.num_ended == 0


@contextmanager
def process_of_a_run(name: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that belongs to a run of this home."""
    folder = run_dir(paths.data_dir(), name).path
    folder.mkdir(parents=True)
    environ = {RUN_VARIABLE: str(folder), "PATH": os.defpath}
    with subprocess.Popen(["sleep", "3600"], env=environ, start_new_session=True) as process:
        wait_until_executed(process)
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def signals() -> Iterator[None]:
    """Restore the handlers that the watcher replaces."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize(
    ("line", "has_successor", "is_killed"),
    [(b"1e12\n", False, True), (b"1e12\n", True, False), (b"inf\n", False, False)],
)
def test_what_an_agent_leaves_is_killed_unless_its_successor_does_that(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    line: bytes,
    has_successor: bool,
    is_killed: bool,
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    monkeypatch.setattr(lease_watch, "_LOCK_S", 0.05)
    levels: list[int] = []
    monkeypatch.setattr(logging, "basicConfig", lambda *, level, format: levels.append(level))
    agent, watcher = socket.socketpair()
    descriptor = watcher.detach()
    monkeypatch.setattr(sys, "argv", ["lease_watch", str(descriptor), "1"])
    agent.sendall(line)
    agent.shutdown(socket.SHUT_WR)
    lock = take_lock(paths.agent_lock(), timeout_s=1.0) if has_successor else None
    with agent, process_of_a_run("1.1.1") as process:
        assert lease_watch.main() == 0
        assert has_ended(process.pid) is is_killed
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    del lock
    assert levels == [logging.INFO]
    killed = f"the agent has exited: killed [{process.pid}]"
    assert [record.getMessage() for record in caplog.records] == [killed] * is_killed


def test_the_end_of_a_lease_kills_what_belongs_to_the_runs_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    end: Callable[[int], None] = lease_watch._end_all
    with process_of_a_run("1.1.1") as process:
        end(process.pid)  # the agent itself is spared, to tell its master
        assert not has_ended(process.pid)
        assert caplog.records == []
        agent = subprocess.Popen(["true"])
        agent.wait()
        end(agent.pid)
        assert has_ended(process.pid)
    assert f"the lease has ended: killed [{process.pid}]" in caplog.text


def test_only_what_an_agent_that_lives_has_started_counts_as_started_by_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = os.getpid()
    with (
        subprocess.Popen(
            ["sh", "-c", "sleep 3600 & echo $!; wait"], stdout=subprocess.PIPE
        ) as living,
        subprocess.Popen(["true"]) as ended,
    ):
        assert living.stdout is not None
        below = int(living.stdout.readline())
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        before = lease_watch._descendants(here)  # this process is no child of it
        monkeypatch.setattr(os, "getppid", lambda: here)
        found = {process.pid for process in lease_watch._descendants(here)}
        monkeypatch.setattr(os, "getpid", lambda: living.pid)  # it does not end itself
        others = {process.pid for process in lease_watch._descendants(here)}
        monkeypatch.undo()
        for pid in (living.pid, below):
            os.kill(pid, signal.SIGKILL)
    assert before == []
    assert {living.pid, below} <= found
    assert not {ended.pid, here} & found
    assert found - others == {living.pid}


def test_a_process_that_has_gone_meanwhile_has_ended() -> None:
    def gone() -> str:
        raise psutil.NoSuchProcess(7)

    process: Any = SimpleNamespace(status=gone)
    assert lease_watch._has_ended(process)


def test_a_lease_is_checked_often_and_what_is_left_is_killed_every_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, ended, waits = [100.0], list[float](), list[float | None]()
    # Seconds that pass, and what the agent sends then.
    steps: list[tuple[float, bytes | None]] = [
        (0, b"110.0\n"), (10, None), (0.1, None), (1, None), (1, None), (0, b"200.0\n"),
        (50, None), (0, b"inf\n"), (0, b""),
    ]  # fmt: skip
    sent: list[bytes] = []
    data = b""

    def select(readers: list[Any], _: object, __: object, timeout_s: float | None) -> Any:
        nonlocal data
        waits.append(timeout_s)
        seconds, found = steps.pop(0)
        now[0] += seconds
        data = found or b""
        return ([] if found is None else readers), [], []

    monkeypatch.setattr(lease_watch, "select", SimpleNamespace(select=select))
    monkeypatch.setattr(lease_watch, "since_boot", lambda: now[0])
    connection: Any = SimpleNamespace(recv=lambda most: data, sendall=sent.append)
    assert not watch(connection, lambda: ended.append(now[0]))
    # At 110.0 sharp the lease has not ended.
    assert ended == [pytest.approx(110.1), pytest.approx(111.1), pytest.approx(112.1)]
    assert waits == [None, 0.1, 0.1, 1.0, 1.0, 1.0, 0.1, 0.1, None]
    assert sent == [b"110.0\n", b"expired\n", b"200.0\n", b"inf\n"]
