"""The runner: when a gang that was asked to leave is killed. The loop's clock is set by hand."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from det_jupyter.agent.runs import runner as runner_module
from det_jupyter.agent.runs.active_run import ActiveRun
from det_jupyter.agent.runs.gang import Gang
from det_jupyter.agent.runs.run import AgentRun, new_run
from det_jupyter.agent.runs.runner import Runner
from det_jupyter.agent.starting.launcher import Launcher
from det_jupyter.agent.starting.rank_processes import RankExit, RankProcesses, StartFailed
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import (
    GangExited,
    GangPlan,
    KillGang,
    Loss,
    SignalGang,
    StartGang,
    TakeSamples,
)
from tests.integration.agent_support import make_plan, remote_master, run_of

ID = "1.1.1"


class HandClock(asyncio.SelectorEventLoop):
    """A loop whose time passes when a test says so."""

    now = 1000.0

    def time(self) -> float:
        return self.now

    async def advance(self, seconds: float) -> None:
        self.now += seconds
        for _ in range(5):  # the timer, the task that it wakes, what that one wakes
            await asyncio.sleep(0)


class NoProcesses:
    """Starts gangs of which no process exists."""

    def __init__(self) -> None:
        self.exits: asyncio.Queue[RankExit] = asyncio.Queue()

    async def launch(self, *_: Any) -> RankProcesses:
        return RankProcesses(pids={0: 2**30}, exits=self.exits, note="")


Scenario = Callable[[HandClock, Runner, NoProcesses], Awaitable[None]]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., AgentRun]:
    """Return what starts a gang of one rank, plays a scenario and returns the run.

    If `is_remote`, the master is on another computer.
    """
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))

    def play_one(scenario: Scenario, *, is_remote: bool = False) -> AgentRun:
        async def act(loop: HandClock) -> AgentRun:
            launcher = NoProcesses()
            runner = Runner(
                agents=["a"],
                adopted=[],
                launcher=cast(Launcher, launcher),
                lifeline_fd=-1,
                socket_dir=tmp_path,
                num_threads=1,
                remote=remote_master() if is_remote else None,
            )

            def kill(pid: int) -> None:
                launcher.exits.put_nowait(RankExit(0, -9))

            monkeypatch.setattr(runner_module, "kill_group", kill)
            plan = make_plan(ID, [], slots=1, agent_ids=["a"])
            runner.carry_out(StartGang(plan=plan), agent_id="a")
            await runner.news.wait()
            await scenario(loop, runner, launcher)
            return runner.runs_of("a")[ID]

        with asyncio.Runner(loop_factory=HandClock) as loops:
            return loops.run(act(cast(HandClock, loops.get_loop())))

    return play_one


def preempt(timeout_s: float) -> SignalGang:
    return SignalGang(allocation_id=ID, signal="preempt", timeout_s=timeout_s)


@pytest.mark.parametrize("timeouts_s", [(60, 3600), (3600, 60), (60, 60)])
def test_a_gang_is_killed_at_its_earliest_deadline_whatever_is_ordered_later(
    play: Callable[[Scenario], AgentRun],
    caplog: pytest.LogCaptureFixture,
    timeouts_s: tuple[float, float],
) -> None:
    async def scenario(loop: HandClock, runner: Runner, _: NoProcesses) -> None:
        for timeout_s in timeouts_s:
            runner.carry_out(preempt(timeout_s), agent_id="a")
        await loop.advance(59.9)
        assert runner.has_living_gangs
        await loop.advance(0.2)
        assert not runner.has_living_gangs

    exited = play(scenario).exited
    assert exited is not None
    assert exited.killed
    assert "allocation=1.1.1 did not leave in time: killed" in caplog.text


def test_an_order_that_is_repeated_does_not_postpone_the_kill(
    play: Callable[[Scenario], AgentRun],
) -> None:
    async def scenario(loop: HandClock, runner: Runner, _: NoProcesses) -> None:
        runner.carry_out(preempt(60), agent_id="a")
        for _again in range(7):
            await loop.advance(10)
            runner.carry_out(preempt(60), agent_id="a")
        assert not runner.has_living_gangs

    exited = play(scenario).exited
    assert exited is not None
    assert exited.killed


def test_a_gang_that_leaves_in_time_is_not_killed_afterwards(
    play: Callable[[Scenario], AgentRun], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(loop: HandClock, runner: Runner, launcher: NoProcesses) -> None:
        for timeout_s in (60, 90, 30):
            runner.carry_out(preempt(timeout_s), agent_id="a")
        launcher.exits.put_nowait(RankExit(0, 0))
        await loop.advance(0)
        await loop.advance(3600)

    with caplog.at_level(logging.WARNING):
        exited = play(scenario).exited
    assert exited is not None
    assert (exited.killed, exited.exit_codes) == (False, {0: 0})
    assert "did not leave in time" not in caplog.text


def test_orders_to_a_gang_that_is_over_or_unknown_change_nothing(
    play: Callable[[Scenario], AgentRun],
) -> None:
    async def scenario(loop: HandClock, runner: Runner, launcher: NoProcesses) -> None:
        launcher.exits.put_nowait(RankExit(0, 0))
        await loop.advance(0)
        for allocation_id in (ID, "9.9.9"):
            runner.carry_out(KillGang(allocation_id=allocation_id), agent_id="a")
            order = preempt(0).model_copy(update={"allocation_id": allocation_id})
            runner.carry_out(order, agent_id="a")
        await loop.advance(1)

    exited = play(scenario).exited
    assert exited is not None
    assert not exited.killed


def test_a_machine_is_watched_for_as_long_as_the_newest_order_says(
    play: Callable[[Scenario], AgentRun],
) -> None:
    async def scenario(loop: HandClock, runner: Runner, launcher: NoProcesses) -> None:
        assert not runner.is_watched("a")
        runner.carry_out(TakeSamples(for_s=10), agent_id="a")
        await loop.advance(9)
        assert runner.is_watched("a")
        assert not runner.is_watched("b")
        runner.carry_out(TakeSamples(for_s=10), agent_id="a")
        await loop.advance(9)
        assert runner.is_watched("a")
        await loop.advance(1)
        assert not runner.is_watched("a")
        runner.carry_out(KillGang(allocation_id=ID, gives_up_uploads=True), agent_id="a")
        await loop.advance(0)
        assert not runner.has_living_gangs

    play(scenario)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.floats(0, 20), st.floats(0.5, 100)), min_size=1, max_size=8))
def test_of_any_orders_the_first_deadline_holds_and_one_timer_is_left(
    orders: list[tuple[float, float]],
) -> None:
    async def act(loop: HandClock) -> None:
        killed: list[int] = []
        gang = Gang(ID, [0], kill_group=killed.append)
        gang.started({0: 7})
        active = ActiveRun(run=run_of(make_plan(ID, [], slots=1)), gang=gang)
        due = float("inf")
        for pause_s, timeout_s in orders:
            await loop.advance(pause_s)
            assert gang.killed == (loop.now >= due)
            if gang.killed:
                return
            due = min(due, loop.now + timeout_s)
            active.kill_at(loop.now + timeout_s)
        assert active.deadline is not None
        assert active.deadline.when() == due
        await loop.advance(due - loop.now + 1)
        await loop.advance(1000)
        assert killed == [7]

    with asyncio.Runner(loop_factory=HandClock) as loops:
        loops.run(act(cast(HandClock, loops.get_loop())))


@pytest.mark.parametrize("loss", [None, Loss.MASTER, Loss.FORK_SERVER])
def test_start_that_fails_says_whether_its_ranks_were_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: Loss | None
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))

    async def fetch(_: AgentRun) -> None:
        raise StartFailed("the master does not answer", loss)

    async def act() -> AgentRun:
        runner = Runner(
            agents=["a"],
            adopted=[],
            launcher=cast(Launcher, NoProcesses()),
            lifeline_fd=-1,
            socket_dir=tmp_path,
            num_threads=1,
            prepare=fetch,
            remote=remote_master(),
        )
        plan = make_plan(ID, [], slots=1, agent_ids=["a"])
        runner.carry_out(StartGang(plan=plan), agent_id="a")
        await runner.news.wait()
        return runner.runs_of("a")[ID]

    exited = asyncio.run(act()).exited
    assert exited is not None
    assert exited.error == "the master does not answer"
    assert (exited.lost, exited.loss) == (loss is not None, loss or Loss.UNKNOWN)


@pytest.mark.parametrize("is_killed", [True, False])
def test_gang_whose_files_are_being_fetched_ends_at_once(tmp_path: Path, is_killed: bool) -> None:
    async def fetch(_: AgentRun) -> None:
        await asyncio.sleep(3600)

    async def act() -> AgentRun:
        runner = Runner(
            agents=["a"],
            adopted=[],
            launcher=cast(Launcher, NoProcesses()),
            lifeline_fd=-1,
            socket_dir=tmp_path,
            num_threads=1,
            prepare=fetch,
            remote=remote_master(),
        )
        plan = make_plan(ID, [], slots=1, agent_ids=["a"])
        runner.carry_out(StartGang(plan=plan), agent_id="a")
        await asyncio.sleep(0.01)
        if is_killed:
            runner.carry_out(KillGang(allocation_id=ID, gives_up_uploads=True), agent_id="a")
        if not is_killed:
            await runner.lose(Loss.LEAVING, 5)
        await runner.news.wait()
        return runner.runs_of("a")[ID]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(paths.HOME_VARIABLE, str(tmp_path))
        run = asyncio.run(act())
    exited = run.exited
    assert exited is not None
    assert (exited.killed, exited.lost) == (is_killed, not is_killed)
    assert run.is_killed == is_killed


@pytest.mark.parametrize("order", ["rank first", "agent first", "rank alone"])
def test_rank_that_ends_by_a_signal_to_its_agent_too_is_lost_and_has_not_failed(
    play: Callable[..., AgentRun], order: str
) -> None:
    async def scenario(loop: HandClock, runner: Runner, launcher: NoProcesses) -> None:
        if order == "agent first":
            runner.leave_ordered.set()
        launcher.exits.put_nowait(RankExit(0, -15))
        await loop.advance(0.1)
        if order == "rank first":
            runner.leave_ordered.set()
        await loop.advance(0.5)
        assert not runner.has_living_gangs

    exited = play(scenario, is_remote=True).exited
    assert exited is not None
    assert (exited.lost, exited.loss, exited.first_failed) == (
        (False, Loss.UNKNOWN, 0) if order == "rank alone" else (True, Loss.LEAVING, None)
    )


def test_gang_that_is_ordered_while_the_agent_exits_is_lost_at_once(
    play: Callable[..., AgentRun],
) -> None:
    async def scenario(loop: HandClock, runner: Runner, launcher: NoProcesses) -> None:
        runner.leave_ordered.set()
        late = make_plan("1.1.2", [], slots=1, agent_ids=["a"])
        runner.carry_out(StartGang(plan=late), agent_id="a")
        exited = runner.runs_of("a")["1.1.2"].exited
        assert exited is not None
        assert (exited.lost, exited.killed, exited.error) == (True, False, "")
        runner.carry_out(KillGang(allocation_id=ID, gives_up_uploads=True), agent_id="a")
        await loop.advance(0)

    play(scenario, is_remote=True)


def test_gang_that_is_ordered_while_the_agent_of_the_master_exits_is_left_to_its_successor(
    play: Callable[[Scenario], AgentRun],
) -> None:
    async def scenario(loop: HandClock, runner: Runner, launcher: NoProcesses) -> None:
        runner.leave_ordered.set()
        late = make_plan("1.1.2", [], slots=1, agent_ids=["a"])
        runner.carry_out(StartGang(plan=late), agent_id="a")
        assert list(runner.runs_of("a")) == [ID]
        runner.carry_out(KillGang(allocation_id=ID, gives_up_uploads=True), agent_id="a")
        await loop.advance(0)

    play(scenario)


def test_run_that_has_ended_fails_if_its_last_checkpoint_cannot_be_stored(
    play: Callable[[Scenario], AgentRun],
) -> None:
    async def scenario(loop: HandClock, runner: Runner, launcher: NoProcesses) -> None:
        launcher.exits.put_nowait(RankExit(0, 0))
        await loop.advance(1.0)
        run = runner.runs_of("a")[ID]
        assert run.exited is not None
        run.exit_sent_at = 1.0
        runner.break_off(run, "no room there", no_room=True)

    run = play(scenario)
    assert run.exited is not None
    assert (run.exited.error, run.exited.not_saved) == ("no room there", True)
    assert run.exited == GangExited.model_validate_json(run.dir.exit.read_bytes())
    assert run.exit_sent_at is None


@pytest.mark.parametrize("is_remote", [True, False])
def test_plan_in_the_folder_of_a_remote_run_has_no_values_of_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_remote: bool
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    variables = {"cpu": ["SECRET=1=2", "NAMED"], "cuda": ["SECRET=3"]}
    config = {"environment": {"environment_variables": variables, "image": "none"}}
    plan = make_plan(ID, []).model_copy(update={"config": config})
    run = new_run(plan, sockets=tmp_path / "sockets", remote_agent="b" if is_remote else "")
    run.prepare()
    stored = GangPlan.model_validate_json(run.dir.plan.read_bytes())
    names = {"cpu": ["SECRET", "NAMED"], "cuda": ["SECRET"]}
    expected = {"environment_variables": names if is_remote else variables, "image": "none"}
    assert stored.config == {"environment": expected}
    assert run.plan.config == config
