"""Waiting for a master that starts: until it serves or has ended, however long that takes."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from det_jupyter import connection
from det_jupyter.connection import ensure_master
from det_jupyter.contract.host import paths
from det_jupyter.errors import MasterUnreachable

# Serves, as far as its file says so, after some turns of the one that waits; or after a lock.
SERVES = """
import os, sys, time
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.locks import take_lock
from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.contract.messages import PROTOCOL, MasterInfo
held = take_lock(paths.master_lock(), timeout_s=60)
print("holds", flush=True)
time.sleep(0.5)
own = ProcessIdentity.of(os.getpid())
paths.write_private(paths.master_file(), MasterInfo(
    url="http://127.0.0.1:1", token="t", pid=own.pid, birth=own.birth, host=own.host,
    started_at=0.0, version="0", protocol=PROTOCOL, python="python", data_dir="/",
).model_dump_json())
time.sleep(600)
"""

Spawn = Callable[..., None]


@pytest.fixture(autouse=True)
def busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a minute pass in each look at the clock, as if nothing got a turn."""
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    minutes = count(0, 60)
    clock = SimpleNamespace(monotonic=lambda: next(minutes), sleep=time.sleep)
    monkeypatch.setattr(connection, "time", clock)


@pytest.fixture
def spawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spawn]:
    """Yield a function that says which programs are started as masters, one after another."""
    started: list[subprocess.Popen[bytes]] = []

    def become(*sources: str) -> None:
        left = list(sources)

        def start() -> subprocess.Popen[bytes]:
            started.append(subprocess.Popen([sys.executable, "-c", left.pop(0)]))
            return started[-1]

        monkeypatch.setattr(connection, "spawn_master", start)

    yield become
    for process in started:
        process.kill()
        process.wait()


def test_master_that_starts_slowly_is_waited_for(
    spawn: Spawn, caplog: pytest.LogCaptureFixture
) -> None:
    spawn(SERVES)
    with caplog.at_level(logging.WARNING):
        assert ensure_master().token == "t"
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert said[0].startswith("still waiting for the det_jupyter master, which is starting (pro")


def test_another_master_that_starts_slowly_is_waited_for(spawn: Spawn) -> None:
    with subprocess.Popen([sys.executable, "-c", SERVES], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"holds\n"
        spawn("")  # it finds that another one has the lock, and ends with 0
        try:
            assert ensure_master().pid == other.pid
        finally:
            other.kill()


def test_master_is_started_again_if_the_one_that_had_the_lock_was_ending(spawn: Spawn) -> None:
    spawn("", SERVES)
    assert ensure_master().token == "t"


def test_master_that_ends_is_not_waited_for(spawn: Spawn) -> None:
    spawn("raise SystemExit(3)")
    with pytest.raises(MasterUnreachable, match=r"did not start \(exit status 3\)"):
        ensure_master()


def test_master_that_is_stopped_is_not_waited_for(spawn: Spawn) -> None:
    spawn("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)")
    with pytest.raises(MasterUnreachable, match="is stopped; `kill -CONT"):
        ensure_master()
