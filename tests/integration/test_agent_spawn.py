"""Ranks that are started afresh, as far as no interpreter is needed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from det_jupyter.agent.runs.run import AgentRun
from det_jupyter.agent.runs.specs import make_specs
from det_jupyter.agent.starting import spawn
from det_jupyter.agent.starting.rank_processes import (
    RankExit,
    RankProcesses,
    StartFailed,
    has_ended,
    kill_group,
)
from det_jupyter.agent.starting.spawn import Spawner
from tests.processes import wait_until
from tests.unit.agent.link.test_outbox import make_run


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgentRun:
    """Return a run of two ranks that are `sleep` processes."""
    monkeypatch.setattr(spawn, "kernel_argv", lambda python: ["sleep", "3600"])
    run = make_run(tmp_path)
    run.sockets = tmp_path
    return run


def spawn_gang(spawner: Spawner, run: AgentRun) -> RankProcesses:
    lifeline, write_end = os.pipe()
    try:
        specs = make_specs(run, lifeline_fd=lifeline, num_threads=1)
        return spawner.spawn_gang(specs, note="")
    finally:
        os.close(lifeline)
        os.close(write_end)


def test_group_is_killed_while_its_pid_is_still_the_rank_s(
    run: AgentRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawner = Spawner()
    pids = spawn_gang(spawner, run).pids.values()
    states = []
    monkeypatch.setattr(
        spawn, "kill_group", lambda pid: states.append(psutil.Process(pid).status())
    )
    for pid in pids:
        psutil.Process(pid).kill()
    wait_until(lambda: all(map(has_ended, pids)), "the ranks have ended")
    spawner.reap()
    assert states == [psutil.STATUS_ZOMBIE] * 2
    assert not any(map(psutil.pid_exists, pids))


def test_rank_that_was_killed_is_reported_before_those_that_ended_for_want_of_it(
    run: AgentRun,
) -> None:
    spawner = Spawner()
    processes = spawn_gang(spawner, run)
    os.kill(processes.pids[0], signal.SIGTERM)
    os.kill(processes.pids[1], signal.SIGKILL)
    wait_until(lambda: all(map(has_ended, processes.pids.values())), "the ranks have ended")
    spawner.reap()
    assert [processes.exits.get_nowait() for _ in range(2)] == [RankExit(1, -9), RankExit(0, -15)]


def test_living_ranks_are_not_reaped(run: AgentRun) -> None:
    spawner = Spawner()
    pids = spawn_gang(spawner, run).pids.values()
    spawner.reap()
    assert not any(map(has_ended, pids))
    for pid in pids:
        kill_group(pid)
    wait_until(lambda: all(map(has_ended, pids)), "the ranks have ended")
    spawner.reap()


def test_gang_of_which_a_rank_cannot_be_started_has_none_and_is_worth_another_try(
    run: AgentRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    real = spawn._spawn

    def spawn_once(*arguments: object) -> subprocess.Popen[bytes]:
        if started:
            raise subprocess.SubprocessError("Exception occurred in preexec_fn.")
        started.append(real(*arguments))  # type: ignore[arg-type]  # passed on as they are
        return started[0]

    monkeypatch.setattr(spawn, "_spawn", spawn_once)
    with pytest.raises(StartFailed, match=r"rank 1 could not be started: Exception occurred"):
        spawn_gang(Spawner(), run)
    assert started[0].returncode == -9


def test_single_rank_gets_no_port_and_its_share_of_threads(
    run: AgentRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    specs = []

    def note(spec: object, argv: object) -> subprocess.Popen[bytes]:
        specs.append(spec)
        return subprocess.Popen([sys.executable, "-S", "-c", ""])

    monkeypatch.setattr(spawn, "_spawn", note)
    alone = run.plan.model_copy(update={"slots": run.plan.slots[:1]})
    single = AgentRun(plan=alone, dir=run.dir, sockets=tmp_path)
    (spec,) = make_specs(single, lifeline_fd=0, num_threads=3)
    spawner = Spawner()
    processes = spawner.spawn_gang([spec], note="")
    wait_until(lambda: has_ended(processes.pids[0]), "the rank has ended")
    spawner.reap()
    assert processes.exits.get_nowait() == RankExit(0, 0)
    assert specs == [spec]
    assert (spec.place.master_port, spec.place.num_threads) == (0, 3)


def test_each_start_of_a_run_meets_elsewhere_and_with_another_secret(run: AgentRun) -> None:
    first, second = (make_specs(run, lifeline_fd=0, num_threads=1) for _ in range(2))
    assert len({spec.store for spec in first}) == len({spec.secret for spec in first}) == 1
    assert first[0].store != second[0].store
    assert first[0].secret != second[0].secret
    assert first[0].secret not in repr(first[0])
