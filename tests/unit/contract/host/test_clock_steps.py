"""Steps of the system clock are noticed, and processes are known whatever it says."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from det_jupyter.agent.starting.rank_processes import end_survivors, write_records
from det_jupyter.connection import find_master
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.clock_steps import ClockWatch
from det_jupyter.contract.host.locks import take_lock
from det_jupyter.contract.host.processes import birth_of, is_frozen
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.messages import PROTOCOL, MasterInfo
from det_jupyter.errors import ProtocolMismatch

HOURS_S = 3600.0
STEPS = pytest.mark.parametrize("by_s", [3.0, -3.0, 5 * HOURS_S, -5 * HOURS_S])


class Clocks:
    """The clock, and one that cannot be set."""

    def __init__(self) -> None:
        self.wall, self.steady = 1_000_000.0, 50.0

    def pass_s(self, seconds: float, *, set_by_s: float = 0.0) -> None:
        self.steady += seconds
        self.wall += seconds + set_by_s

    def watch(self) -> ClockWatch:
        return ClockWatch(lambda: self.wall, lambda: self.steady)


@STEPS
def test_a_step_is_told_once(by_s: float) -> None:
    clocks = Clocks()
    watch = clocks.watch()
    clocks.pass_s(1.0)
    assert watch.step_s() == 0
    clocks.pass_s(1.0, set_by_s=by_s)
    assert watch.step_s() == pytest.approx(by_s)
    clocks.pass_s(1.0)
    assert watch.step_s() == 0


def test_a_clock_that_runs_a_little_fast_makes_no_step_however_long() -> None:
    clocks = Clocks()
    watch = clocks.watch()
    for _ in range(10_000):
        clocks.pass_s(1.0, set_by_s=0.0005)  # as fast as NTP adjusts it
        assert watch.step_s() == 0


def test_a_freeze_between_two_readings_is_no_step() -> None:
    steady = iter([50.0, 51.0, 3651.0, 3652.0, 3652.0])
    wall = iter([1000.0, 1001.0, 4602.0])
    watch = ClockWatch(lambda: next(wall), lambda: next(steady))
    assert watch.step_s() == 0  # stopped for an hour after it had read the clock
    assert watch.step_s() == 0


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def set_clock(monkeypatch: pytest.MonkeyPatch, by_s: float) -> None:
    """Have psutil tell births as it does after such a step: it reckons them from the clock."""
    told = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: told(self) + by_s)


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    return tmp_path


def announce(pid: int, *, birth: str | None, protocol: int = PROTOCOL) -> MasterInfo:
    info = MasterInfo(
        url="http://127.0.0.1:1", token="t", pid=pid, started_at=0.0, birth=birth or "",
        version="0", protocol=protocol, python="python", data_dir="/",
    )  # fmt: skip
    paths.write_private(paths.master_file(), info.model_dump_json())
    return info


@STEPS
@pytest.mark.usefixtures("runtime")
def test_the_master_is_found_after_a_step(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, by_s: float
) -> None:
    info = announce(sleeper.pid, birth=birth_of(sleeper.pid))
    set_clock(monkeypatch, by_s)
    assert find_master() == info


@pytest.mark.usefixtures("runtime")
def test_a_process_that_got_the_master_s_pid_later_is_no_master() -> None:
    announce(os.getpid(), birth="1@before")
    assert find_master() is None


@pytest.mark.usefixtures("runtime")
def test_a_master_that_has_ended_and_is_not_reaped_is_none() -> None:
    process = subprocess.Popen(["sleep", "60"])
    announce(process.pid, birth=birth_of(process.pid))
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert find_master() is None
    process.wait()
    assert find_master() is None


@pytest.mark.usefixtures("runtime")
def test_a_master_of_another_version_is_known_by_its_lock_and_named() -> None:
    announce(os.getpid(), birth=None, protocol=3)
    assert find_master() is None
    lock = take_lock(paths.master_lock(), timeout_s=0)
    assert lock is not None
    with pytest.raises(ProtocolMismatch, match=rf"process {os.getpid()}\) is det_jupyter 0 "):
        find_master()
    paths.master_file().write_text("{}")
    with pytest.raises(ProtocolMismatch, match="written by another version"):
        find_master()
    os.close(lock)
    assert find_master() is None


@STEPS
def test_a_rank_that_outlived_its_agent_is_ended_after_a_step(
    sleeper: subprocess.Popen[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    by_s: float,
) -> None:
    run = RunDir(tmp_path)
    write_records(run, {0: sleeper.pid})
    set_clock(monkeypatch, by_s)
    end_survivors(run)
    assert sleeper.wait() == -signal.SIGKILL


def test_records_of_an_older_version_end_nobody(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    run.ranks.write_text(f'[{{"rank": 0, "pid": {os.getpid()}, "created_at": 1.0}}]')
    end_survivors(run)


def test_a_frozen_process_is_known(sleeper: subprocess.Popen[bytes]) -> None:
    assert not is_frozen(sleeper.pid)
    sleeper.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED)
    assert is_frozen(sleeper.pid)
    assert birth_of(sleeper.pid) is not None
    sleeper.send_signal(signal.SIGCONT)
    os.waitid(os.P_PID, sleeper.pid, os.WCONTINUED)
    assert not is_frozen(sleeper.pid)
    assert not is_frozen(2**22 + 1)
