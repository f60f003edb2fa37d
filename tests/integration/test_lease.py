"""The watcher of a lease ends what a stopped or killed agent has started."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from det_jupyter.agent.runs import lease as lease_module
from det_jupyter.agent.runs.lease import FENCE_S, MARGIN_S, Lease
from det_jupyter.agent.starting.rank_processes import StartFailed
from det_jupyter.contract.host.clock_steps import since_boot
from det_jupyter.contract.host.processes import birth_of, is_frozen
from det_jupyter.master.background.agent_supervisor import LOST_S
from tests.processes import at_home, processes_of, wait_until

# Stands for an agent with a rank in a session of its own, a stopped one, and a daemon that a rank
# has started.
AGENT = """
import asyncio, os, signal, subprocess, sys
from det_jupyter.agent.runs.lease import Lease
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.clock_steps import since_boot
from det_jupyter.contract.host.rundir import RUN_VARIABLE, runs_root

async def main():
    lease = Lease()
    await lease.hold()
    rank = subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=-3, stderr=-3)
    stopped = subprocess.Popen(["sleep", "600"], stdout=-3, stderr=-3)
    stopped.send_signal(signal.SIGSTOP)
    run = {RUN_VARIABLE: str(runs_root(paths.data_dir()) / "run")}
    daemon = subprocess.check_output(
        "setsid sleep 600 > /dev/null 2>&1 & echo $!", shell=True, env=os.environ | run
    )
    lease.fence_s = 1.0
    lease.renew(since_boot())
    number = await lease.hold()
    if sys.argv[1] == "release":
        lease.release()
    print(rank.pid, stopped.pid, int(daemon), lease._watcher.pid, flush=True)
    await asyncio.to_thread(input)
    print(lease.has_expired_since(number), rank.poll(), flush=True)
    await lease.hold()

asyncio.run(main())
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    with at_home(tmp_path, {}) as home:
        yield home.path
    for process in processes_of(tmp_path):
        process.kill()


def start(what: str) -> tuple[subprocess.Popen[str], list[int], int]:
    """Start an agent; return it, the pids of what it has started, and that of the watcher."""
    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT, what],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert agent.stdout is not None
    *ranks, watcher = map(int, agent.stdout.readline().split())
    assert len(ranks) == 3
    return agent, ranks, watcher


def kill(agent: subprocess.Popen[str]) -> None:
    agent.kill()
    agent.wait()
    for pipe in (agent.stdin, agent.stdout, agent.stderr):
        assert pipe is not None
        pipe.close()


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if birth_of(pid)]


def test_limits_leave_time_for_killed_ranks_to_exit_before_they_are_started_elsewhere() -> None:
    assert FENCE_S + MARGIN_S + 3.0 <= LOST_S


def test_all_that_a_stopped_agent_has_started_is_killed_and_it_is_notified(home: Path) -> None:
    agent, ranks, watcher = start("hold")
    agent.send_signal(signal.SIGSTOP)
    assert alive(ranks) == ranks
    wait_until(lambda: not alive(ranks), "the ranks are killed")
    assert is_frozen(agent.pid)
    agent.send_signal(signal.SIGCONT)
    printed, errors = agent.communicate("go on\n")
    assert printed.split() == ["True", str(-signal.SIGKILL)]
    assert "the master has not answered" in errors
    wait_until(lambda: not alive([watcher]), "the watcher ends")


def test_daemon_of_a_killed_agent_is_killed(home: Path) -> None:
    agent, ranks, watcher = start("hold")
    kill(agent)
    wait_until(lambda: not alive([watcher]), "the watcher ends")
    assert not alive(ranks[2:])


def test_nothing_is_killed_after_the_release_of_the_lease(home: Path) -> None:
    agent, ranks, watcher = start("release")
    agent.send_signal(signal.SIGSTOP)
    psutil.Process(watcher).send_signal(signal.SIGTERM)  # is ignored
    with pytest.raises(psutil.TimeoutExpired):
        psutil.Process(watcher).wait(3.0)
    assert alive(ranks) == ranks
    kill(agent)


def test_watcher_that_was_killed_is_replaced_and_has_the_lease(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act() -> None:
        lease = Lease()
        number = await lease.hold()
        assert lease._watcher is not None
        lease._watcher.kill()
        lease._watcher.wait()
        monkeypatch.setattr(lease_module, "_PAUSE_S", 0.0)
        lease.keep_watched()
        assert await lease.hold() == number
        lease.renew(since_boot() + 1)
        await lease.hold()
        assert not lease.has_expired_since(number)
        await lease.close()
        assert lease._watcher.returncode == 0

    asyncio.run(act())


def test_no_rank_is_started_while_the_watcher_is_stopped(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act() -> None:
        lease = Lease()
        await lease.hold()
        assert lease._watcher is not None
        os.kill(lease._watcher.pid, signal.SIGSTOP)
        lease.renew(since_boot() + 1)
        monkeypatch.setattr(lease_module, "_ANSWER_S", 0.2)
        with pytest.raises(StartFailed, match=r"has not answered for 0\.2 s"):
            await lease.hold()
        lease._watcher.kill()
        await lease.close()

    asyncio.run(act())


def test_computer_that_was_suspended_counts_that_time(monkeypatch: pytest.MonkeyPatch) -> None:
    lease = Lease()
    later = since_boot() + 40
    monkeypatch.setattr(lease_module, "since_boot", lambda: later)
    assert lease.unanswered_s > FENCE_S
    lease.renew(later - 30)  # the answer was received before the suspend, and read after it
    assert lease.unanswered_s > FENCE_S
    lease.renew(later)
    assert lease.unanswered_s == 0


@pytest.mark.parametrize("function", ["socket.socketpair", "subprocess.Popen"])
def test_watcher_that_cannot_be_started_ends_no_loop_and_lets_no_rank_start(
    home: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    async def run() -> None:
        lease = Lease()
        with monkeypatch.context() as patch:
            patch.setattr(f"{lease_module.__name__}.{function}", fail)
            lease.keep_watched()
            with pytest.raises(StartFailed, match="has not answered"):
                await lease.hold()
        monkeypatch.setattr(lease_module, "_ANSWER_S", 600.0)
        await lease.hold()
        await lease.close()

    monkeypatch.setattr(lease_module, "_ANSWER_S", 0.1)
    asyncio.run(run())
