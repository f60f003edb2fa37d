"""A process is one of a computer: a pid of another computer is not looked up here."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

from det_jupyter.connection import find_master, must_be_awake
from det_jupyter.contract.host import paths, tensorboards
from det_jupyter.contract.host.locks import holder_of, take_lock
from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.contract.messages import PROTOCOL, MasterInfo
from det_jupyter.engine import LocalEngine
from det_jupyter.errors import MasterUnreachable
from tests.waiting import wait_until


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hold the locks of master and agent, in the name of processes of another computer."""
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    files = (paths.master_lock(), paths.agent_lock())
    descriptors = [take_lock(file, timeout_s=0) for file in files]
    for file in files:
        file.write_text(json.dumps(asdict(elsewhere(os.getpid()))))
    yield
    for descriptor in descriptors:
        assert descriptor is not None
        os.close(descriptor)


def elsewhere(pid: int) -> ProcessIdentity:
    """Return a process of another computer that happens to have the pid of one here."""
    return ProcessIdentity(
        pid, f"{ProcessIdentity.of(pid).birth.partition('@')[0]}@its start", "other"
    )


def test_a_process_of_another_computer_is_neither_looked_up_nor_signalled(
    sleeper: subprocess.Popen[bytes],
) -> None:
    here, there = ProcessIdentity.of(sleeper.pid), elsewhere(sleeper.pid)
    assert (here.is_here, here.is_alive) == (True, True)
    assert (there.is_here, there.is_alive) == (False, False)
    os.kill(sleeper.pid, 19)  # SIGSTOP
    wait_until(lambda: here.is_frozen, "it is stopped")
    assert (here.is_frozen, there.is_frozen) == (True, False)
    assert not there.end(0.0)
    assert sleeper.poll() is None
    assert here.end(20.0)


def test_a_computer_that_was_renamed_has_its_processes_still() -> None:
    assert dataclasses.replace(
        ProcessIdentity.of(os.getpid()), host="as it was called before"
    ).is_alive


def test_a_computer_that_was_started_anew_has_none_of_its_processes() -> None:
    before = dataclasses.replace(ProcessIdentity.of(os.getpid()), birth="7@the start before")
    assert (before.is_here, before.is_alive) == (True, False)


@pytest.mark.usefixtures("held")
def test_a_lock_that_another_computer_holds_names_that_process() -> None:
    assert holder_of(paths.agent_lock()) == elsewhere(os.getpid())


def announce(process: ProcessIdentity) -> MasterInfo:
    info = MasterInfo(
        url="http://127.0.0.1:1", token="t", **asdict(process), started_at=0.0, version="0",
        protocol=PROTOCOL, python="python", data_dir="/",
    )  # fmt: skip
    paths.write_private(paths.master_file(), info.model_dump_json())
    return info


@pytest.mark.usefixtures("held")
def test_a_master_on_another_computer_is_told_and_no_second_one_is_started() -> None:
    info = announce(elsewhere(os.getpid()))
    must_be_awake(info)
    with pytest.raises(MasterUnreachable, match=rf"runs on other \(process {os.getpid()}\)"):
        find_master()


def test_a_master_that_another_computer_had_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    announce(elsewhere(os.getpid()))
    assert find_master() is None


@pytest.mark.usefixtures("held")
def test_an_agent_on_another_computer_is_told_without_a_command_for_this_one() -> None:
    engine, there = LocalEngine(), elsewhere(os.getpid())
    why = f"agent a (process {os.getpid()} on other) does not answer"
    assert engine.why_silent("a", there) == why
    assert engine.end_all(0.0) == ([], [f"the agent (pid {os.getpid()} on other)"])


def test_a_tensorboard_of_another_computer_stays_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    board = tensorboards.Board(
        id=tensorboards.make_board_folder(), **asdict(elsewhere(os.getpid())), url="",
        experiments=[], trials=[], logdir="", started_at=0.0,
    )  # fmt: skip
    tensorboards.save(board)
    assert list(tensorboards.running_boards()) == [board]
    assert not board.end()


RENAMED = """
import signal
from det_jupyter.contract.host.processes import rename_own
rename_own("det_jupyter.reader")
print("renamed", flush=True)
signal.pause()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="writes to /proc")
@pytest.mark.parametrize(
    ("words", "seen"),
    [(["-", "serve", "--no-agent"], "det_jupyter.reader"), (["-"], "d"), ([], "")],
)
def test_a_process_is_seen_under_the_name_that_it_has_given_itself(
    words: list[str], seen: str
) -> None:
    """As far as it has room for that: the environment comes after the arguments."""
    command = [sys.executable, *words]
    pipe = subprocess.PIPE
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(RENAMED.encode())
            process.stdin.close()
            assert process.stdout.readline() == b"renamed\n"
            found = psutil.Process(process.pid)
            assert (found.name(), "".join(found.cmdline()[1:])) == ("det-reader", seen)
            assert found.environ() == environment
        finally:
            process.kill()
