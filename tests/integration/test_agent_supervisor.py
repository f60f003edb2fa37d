"""An agent is kept running, and one that is disconnected too long counts as lost."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from det_jupyter._version import __version__
from det_jupyter.client import Client
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.locks import take_lock
from det_jupyter.contract.messages import OtherVersion, RunReport, State
from det_jupyter.engine import LocalEngine
from det_jupyter.errors import Conflict, ProtocolMismatch
from det_jupyter.master.background.agent_supervisor import AgentSupervisor
from det_jupyter.master.service.agents.links import AgentLinks
from tests.integration.master_support import (
    AGENT,
    RUN,
    Bench,
    bench_with_trial,
    first_step,
    gang_exited,
    last_words,
    make_chunk,
    make_request,
    started,
)
from tests.processes import DetHome, det_home, wait_until


@pytest.fixture
def home(tmp_path: Path, light_torch: None) -> Iterator[DetHome]:
    """Return a private master with a real agent."""
    with det_home(tmp_path / "home", {"DET_JUPYTER_CPU_SLOTS": "3"}) as home:
        yield home


def connected_pid(client: Client) -> int | None:
    return next((agent.pid for agent in client.agents() if agent.connected), None)


def test_a_killed_agent_is_replaced(home: DetHome) -> None:
    client = home.client()
    first = wait_until(lambda: connected_pid(client), "the agent is there")
    assert len(client.agents()[0].slots) == 3
    psutil.Process(first).send_signal(signal.SIGKILL)
    wait_until(lambda: connected_pid(client) not in (None, first), "another agent came")
    client.session.close()


def test_the_next_master_takes_over_the_agent_of_a_killed_one(home: DetHome) -> None:
    client = home.client()
    agent = wait_until(lambda: connected_pid(client), "the agent is there")
    master = home.master()
    master.send_signal(signal.SIGKILL)
    wait_until(lambda: not master.is_running() or master.status() == psutil.STATUS_ZOMBIE, "died")
    client.session.close()
    client = home.client()
    assert home.master().pid != master.pid
    assert wait_until(lambda: connected_pid(client), "the agent is back") == agent
    client.session.close()


def test_an_agent_that_stays_away_counts_as_dead(tmp_path: Path) -> None:
    with bench_with_trial(tmp_path / "det.sqlite3") as bench:
        keep_until_lost(bench)
        trial = bench.service.views.trial(1)
        assert trial.restarts == 0  # not its fault
        assert trial.allocation is not None
        assert (trial.allocation.run, trial.allocation.state) == (2, "QUEUED")
        assert trial.waiting_for


def keep_until_lost(bench: Bench) -> None:
    seq = bench.service.machine.state.seq

    async def keep_for_a_while() -> None:
        supervisor = AgentSupervisor(bench.service, LocalEngine(starts=False), lost_s=0.0)
        keeping = asyncio.create_task(supervisor.run())
        while bench.service.machine.state.seq == seq:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)  # it checks a few times more, and reports it once
        keeping.cancel()

    asyncio.run(keep_for_a_while())
    assert bench.service.machine.state.seq == seq + 1


# Agents that run and are not connected


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hold the agent's lock, as a running agent does."""
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    descriptor = take_lock(paths.agent_lock(), timeout_s=0)
    assert descriptor is not None
    yield
    os.close(descriptor)


OLD = OtherVersion(protocol=1, version="0.0.1", pid=4711)
TOLD = "agent here (process 4711) is det_jupyter 0.0.1 (protocol 1)"


def keep_until(bench: Bench, condition: Callable[[], bool], lost_s: float = 0.0) -> None:
    async def keep() -> None:
        supervisor = AgentSupervisor(bench.service, LocalEngine(), lost_s=lost_s)
        keeping = asyncio.create_task(supervisor.run())
        while not condition():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)  # it checks a few times more
        keeping.cancel()

    asyncio.run(keep())


@pytest.mark.parametrize(
    ("hostname", "is_remote", "line"),
    [
        ("", False, "takes over; `kill 4711` ends it with them now"),
        ("", True, f"install the same version there: pip install det-jupyter=={__version__}"),
        ("elsewhere", False, "takes over; kill it there to end it with them now"),
    ],
)
def test_an_agent_of_another_version_is_refused_with_what_to_do_where_it_is(
    hostname: str, is_remote: bool, line: str, tmp_path: Path
) -> None:
    with bench_with_trial(tmp_path / "det.sqlite3") as bench:
        old = OLD.model_copy(update={"hostname": hostname})
        with pytest.raises(ProtocolMismatch, match=f"{line}$"):
            bench.service.register(AGENT, old, is_remote=is_remote)


@pytest.mark.usefixtures("lock")
def test_what_an_agent_of_another_version_still_trains_is_told_and_counts(tmp_path: Path) -> None:
    with bench_with_trial(tmp_path / "det.sqlite3"):
        pass
    bench = Bench(tmp_path / "det.sqlite3")  # the master of the new version
    with pytest.raises(ProtocolMismatch, match="its trials train on"):
        bench.service.register(AGENT, OLD)
    keep_until(bench, lambda: (bench.service.views.trial(1).waiting_for or "").startswith(TOLD))
    trial = bench.service.views.trial(1)
    assert trial.allocation is not None
    assert trial.allocation.run == 1  # not given up
    waiting = asyncio.run(bench.service.submit(make_request()))
    assert TOLD in (waiting.trials[0].waiting_for or "")
    assert bench.service.views.agents()[0].problem.startswith(TOLD)
    # It has exited with its trial, and its successor reports what it finds.
    bench.register(runs=[RunReport(allocation_id=RUN, alive=False)])
    bench.report(make_chunk([started(), first_step(), *last_words()]), gang_exited())
    assert bench.service.views.experiment(1).state is State.COMPLETED
    assert bench.service.views.agents()[0].problem == ""
    bench.service.close()


def test_without_its_environment_a_master_says_so_and_its_lost_agent_counts_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    monkeypatch.setattr("sys.executable", "/gone/bin/python")
    told = "no agent can be started, because /gone/bin/python is gone"
    with bench_with_trial(tmp_path / "det.sqlite3") as bench:
        keep_until(bench, lambda: AGENT in bench.service.machine.state.lost_agents, lost_s=1.5)
        assert [problem.startswith(told) for problem in bench.service.problems] == [True]
        assert told in (bench.service.views.trial(1).waiting_for or "")


def test_runs_of_an_agent_refused_for_hours_wait_for_its_successor_to_report_their_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    lock = take_lock(paths.agent_lock(), timeout_s=0)
    assert lock is not None
    with bench_with_trial(tmp_path / "det.sqlite3") as bench:
        supervisor, silent_s = AgentSupervisor(bench.service, LocalEngine(), lost_s=30.0), 0.0
        monkeypatch.setattr(bench.service.links, "silent_s", lambda _: silent_s)

        def run_after(seconds: float) -> int:
            nonlocal silent_s
            silent_s = seconds
            supervisor._check_agents()
            allocation = bench.service.views.trial(1).allocation
            assert allocation is not None
            return allocation.run

        assert [run_after(40.0), run_after(7200.0)] == [1, 1]
        os.close(lock)  # it ends, and another is started
        assert [run_after(7200.2), run_after(7229.0)] == [1, 1]
        assert run_after(7231.0) == 2  # none has come


def test_an_agent_of_another_version_that_nobody_knows_is_told_as_well(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "det.sqlite3")
    with pytest.raises(ProtocolMismatch):
        bench.service.register(AGENT, OLD)
    (problem,) = bench.service.problems
    assert problem.startswith(TOLD)
    bench.register()
    assert bench.service.problems == []
    bench.service.close()


class Line:
    """A connection to an agent that streams its commands, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        clock = "det_jupyter.master.service.agents.links.time.monotonic"
        monkeypatch.setattr(clock, lambda: self.now)
        self.links = AgentLinks()
        self.links.open(AGENT, "s").is_streaming = True

    def pass_s(self, seconds: float, *, frozen: bool = False) -> None:
        for _ in range(1 if frozen else int(seconds)):
            self.now += seconds if frozen else 1.0
            self.links.tick()


def test_an_agent_that_says_nothing_for_ten_seconds_has_no_line_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = Line(monkeypatch)
    for _ in range(5):
        line.pass_s(9)
        line.links.get(AGENT, "s")  # it has sent a report, even an empty one
    assert line.links.drop_silent() == []
    line.pass_s(11)
    assert line.links.drop_silent() == [AGENT]
    assert not line.links.is_connected(AGENT)
    assert line.links.silent_s(AGENT) == 11
    with pytest.raises(Conflict, match="register first"):
        line.links.get(AGENT, "s")


def test_a_master_that_was_frozen_for_an_hour_takes_nobody_for_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = Line(monkeypatch)
    line.pass_s(3600, frozen=True)
    assert line.links.drop_silent() == []
    assert line.links.silent_s("other") <= 1


def test_a_sign_of_life_costs_no_transaction(tmp_path: Path) -> None:
    with bench_with_trial(tmp_path / "det.sqlite3") as bench:
        seq, rung = bench.service.machine.state.seq, bench.store.feed.last_seq
        assert bench.report() == {}
        assert (bench.service.machine.state.seq, bench.store.feed.last_seq) == (seq, rung)
