"""Processes that tests fork (tests/forks.py): what hangs fails, and none is left."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from det_jupyter.contract.host import paths
from tests.forks import ForkSource, fork_source, torch_source
from tests.processes import DetHome, det_home, find, processes_of, wait_until


def fork_and_wait() -> None:
    os.fork()
    time.sleep(60)


def test_a_fork_is_killed_when_a_wait_for_it_is_interrupted() -> None:
    fork = fork_source().start("time:sleep", 60.0)
    killer = threading.Timer(0.1, signal.raise_signal, [signal.SIGINT])
    killer.start()
    with pytest.raises(KeyboardInterrupt):
        fork.wait()
    killer.join()
    wait_until(lambda: fork.poll() == -signal.SIGKILL, "it is killed")
    fork.terminate()  # as of a Popen: it has ended


def test_a_fork_says_why_it_exits(tmp_path: Path) -> None:
    out, err = tmp_path / "out", tmp_path / "err"
    fork = fork_source().start("sys:exit", "no such trial", outputs=(out, err))
    assert fork.wait() == 1
    assert (out.read_text(), err.read_text()) == ("", "no such trial\n")


def test_forks_end_with_what_they_are_forked_from() -> None:
    source = ForkSource([], {})
    process = psutil.Process(source.start("time:sleep", 60.0).pid)
    source.close()
    process.wait()


def test_master_agent_and_fork_server_are_forks_that_look_like_new_processes(
    tmp_path: Path,
) -> None:
    with det_home(tmp_path, {}) as home:
        assert_forks(home)


def assert_forks(home: DetHome) -> None:
    home.client().session.close()
    line = [torch_source().pid]
    for module in ("det_jupyter.master", "det_jupyter.agent", "det_jupyter.rank.zygote"):
        process = wait_until(lambda: find(home.path, module), f"{module} runs")  # noqa: B023
        assert process.ppid() == line[-1]
        assert process.cmdline()[:1] == [sys.executable]
        assert process.cwd() == str(home.path / "data")
        assert process.environ()[paths.HOME_VARIABLE] == str(home.path)
        assert any("libtorch" in each.path for each in process.memory_maps())
        line.append(process.pid)


def test_what_a_fork_has_forked_is_found_under_its_home(tmp_path: Path) -> None:
    environment = {**os.environ, paths.HOME_VARIABLE: str(tmp_path)}
    fork = fork_source().start(f"{__name__}:fork_and_wait", environment=environment)
    wait_until(lambda: len(processes_of(tmp_path)) == 2, "both run")
    fork.kill()
    fork.wait()
    (left,) = processes_of(tmp_path)
    left.kill()
    left.wait()
