"""Orders to the runs of a process, and what it knows of them; no rank is a process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter.agent.devices.health import DeviceHealth
from det_jupyter.agent.devices.watch import WatchPlan
from det_jupyter.agent.runs import runner as runner_module
from det_jupyter.agent.runs.memory_watch import MemoryEvidence, MemoryWatch
from det_jupyter.agent.runs.run import AgentRun, new_run
from det_jupyter.agent.runs.runner import Runner
from det_jupyter.agent.starting.launcher import Launcher
from det_jupyter.agent.starting.rank_processes import RankExit, RankProcesses, StartFailed
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import (
    CloseRun,
    DeviceFault,
    ExtendGang,
    GangExited,
    GangPlan,
    KillGang,
    Leave,
    Loss,
    PassOrders,
    SignalGang,
    SlotView,
    StartGang,
    TakeSamples,
)
from det_jupyter.contract.messages.rank_orders import Profile, ProfileOrder
from det_jupyter.contract.values.lengths import Length
from det_jupyter.errors import LaunchError
from tests.integration.agent_support import make_plan

AGENTS = ["a", "b"]
GPU = SlotView(id=4, kind="cuda", index=0, name="GPU", uuid="GPU-0")


class Launches:
    """Starts gangs of which no process exists; a rank exits when it is killed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.exits: dict[str, asyncio.Queue[RankExit]] = {}
        self.error: Exception | None = None
        self.dies = True
        self.is_slow = False  # no rank is started before the end is ordered
        self.killed: list[int] = []
        monkeypatch.setattr(runner_module, "kill_group", self._kill)

    async def launch(
        self, plan: GangPlan, _: Any, end_ordered: asyncio.Event
    ) -> RankProcesses | None:
        if self.error is not None:
            raise self.error
        if self.is_slow:
            await end_ordered.wait()
            return None
        exits = self.exits[plan.allocation_id] = asyncio.Queue()
        pids = {rank: 2**30 + rank for rank in range(len(plan.slots))}
        return RankProcesses(pids=pids, exits=exits, note="by hand")

    def _kill(self, pid: int) -> None:
        self.killed.append(pid)
        for exits in self.exits.values() if self.dies else []:
            exits.put_nowait(RankExit(pid - 2**30, -9))


Scenario = Callable[[Runner, Launches], Awaitable[None]]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return what plays a scenario with a runner of two agents."""
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))

    def play_one(scenario: Scenario, adopted: list[AgentRun] | None = None) -> None:
        async def act() -> None:
            launches = Launches(monkeypatch)
            runner = Runner(
                agents=AGENTS,
                adopted=adopted or [],
                launcher=cast(Launcher, launches),
                lifeline_fd=-1,
                socket_dir=tmp_path,
                num_threads=1,
            )
            await scenario(runner, launches)
            launches.dies = True
            await runner.lose(Loss.LEAVING, 60.0)
            assert not runner.has_living_gangs

        asyncio.run(act())

    return play_one


async def started(runner: Runner, plan: GangPlan, agent: str = "a") -> AgentRun:
    """Start a gang and wait until it is."""
    runner.carry_out(StartGang(plan=plan), agent_id=agent)
    run = runner.runs_of(agent)[plan.allocation_id]
    while run.started is None and run.exited is None:
        await asyncio.sleep(0)
    return run


async def ended(run: AgentRun) -> GangExited:
    while run.exited is None:
        await asyncio.sleep(0)
    return run.exited


def make_run(tmp_path: Path, allocation_id: str, *agents: str) -> AgentRun:
    plan = make_plan(allocation_id, [], slots=max(1, len(agents)), agent_ids=[*agents])
    return new_run(plan, sockets=tmp_path / allocation_id)


def test_adopted_runs_belong_to_the_agent_of_their_ranks_or_to_the_first(
    play: Callable[..., None], tmp_path: Path
) -> None:
    adopted = [
        make_run(tmp_path, "1.1.1", "b"),
        make_run(tmp_path, "2.1.1", "gone"),
        make_run(tmp_path, "3.1.1"),
        make_run(tmp_path, "4.1.1", "gone", "b"),
    ]

    async def scenario(runner: Runner, _: Launches) -> None:
        assert sorted(runner.runs_of("a")) == ["2.1.1", "3.1.1"]
        assert sorted(runner.runs_of("b")) == ["1.1.1", "4.1.1"]
        assert sorted(run.id for run in runner.runs()) == ["1.1.1", "2.1.1", "3.1.1", "4.1.1"]
        runner.carry_out(StartGang(plan=adopted[0].plan), agent_id="a")  # it is here already
        assert not runner.has_living_gangs

    play(scenario, adopted)


def test_a_gang_holds_its_slots_and_is_its_agents_until_it_is_over(
    play: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def scenario(runner: Runner, launches: Launches) -> None:
        assert (runner.held_slots(), runner.living_gangs(), runner.has_living_gangs) == (
            [], [], False,
        )  # fmt: skip
        run = await started(runner, make_plan("1.1.1", []), "b")
        assert run.started is not None
        assert run.started.note == "by hand"
        assert runner.held_slots() == run.plan.slots
        (living,) = runner.living_gangs()
        assert (living.run, living.pids) == (run, {0: 2**30, 1: 2**30 + 1})
        assert [len(runner.living_gangs(agent)) for agent in AGENTS] == [0, 1]
        for rank in (0, 1):
            launches.exits["1.1.1"].put_nowait(RankExit(rank, 0))
        exited = await ended(run)
        assert (exited.exit_codes, exited.killed, exited.lost) == ({0: 0, 1: 0}, False, False)
        assert (runner.held_slots(), runner.living_gangs()) == ([], [])
        assert run.dir.ranks.exists()

    play(scenario)
    assert [record.getMessage() for record in caplog.records] == [
        "start_gang allocation=1.1.1",
        f"allocation=1.1.1 started pids={{0: {2**30}, 1: {2**30 + 1}}}: by hand",
        "allocation=1.1.1 is over: exit codes {0: 0, 1: 0}",
    ]


def test_orders_of_a_gang_reach_its_control_page(play: Callable[..., None]) -> None:
    async def scenario(runner: Runner, _: Launches) -> None:
        run = await started(runner, make_plan("1.1.1", []))
        order = ProfileOrder(id=3, profile=Profile())
        for allocation_id in ("1.1.1", "9.9.9"):
            extend = ExtendGang(
                allocation_id=allocation_id, target=Length("batches", 70), target_is_last=False
            )
            runner.carry_out(extend, agent_id="a")
            runner.carry_out(PassOrders(allocation_id=allocation_id, orders=[order]), agent_id="a")
            signal = SignalGang(allocation_id=allocation_id, signal="preempt", timeout_s=60)
            runner.carry_out(signal, agent_id="a")
        with run.open_page() as page:
            assert (page.target(), page.last_order()) == ((70, False), 3)
            assert page.is_raised("preempt")

    play(scenario)


def test_a_run_is_closed_when_its_gang_is_over(play: Callable[..., None]) -> None:
    async def scenario(runner: Runner, launches: Launches) -> None:
        run = await started(runner, make_plan("1.1.1", []))
        close = CloseRun(allocation_id="1.1.1")
        runner.carry_out(close, agent_id="a")
        runner.carry_out(CloseRun(allocation_id="9.9.9"), agent_id="a")
        assert [*runner.runs_of("a")] == ["1.1.1"]
        runner.carry_out(KillGang(allocation_id="1.1.1"), agent_id="a")
        assert (await ended(run)).killed
        runner.carry_out(close, agent_id="a")
        assert [*runner.runs_of("a")] == []
        while run.dir.path.exists():
            await asyncio.sleep(0)

    play(scenario)


def test_an_agent_is_watched_and_leaves_as_ordered(
    play: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(runner: Runner, _: Launches) -> None:
        runner.carry_out(TakeSamples(for_s=60), agent_id="b")
        assert [runner.is_watched(agent) for agent in AGENTS] == [False, True]
        assert not runner.leave_ordered.is_set()
        runner.carry_out(Leave(), agent_id="a")
        assert runner.leave_ordered.is_set()

    with caplog.at_level(logging.INFO):
        play(scenario)
    assert [record.getMessage() for record in caplog.records] == ["leave allocation=all"]


def test_a_checkpoint_that_cannot_be_stored_ends_the_gang(play: Callable[..., None]) -> None:
    async def scenario(runner: Runner, _: Launches) -> None:
        run = await started(runner, make_plan("1.1.1", []))
        runner.news.clear()
        runner.break_off(run, "no room", no_room=True)
        assert runner.news.is_set()
        exited = await ended(run)
        assert (exited.error, exited.error_is_final) == ("no room", False)
        assert (exited.not_saved, exited.no_room) == (True, True)
        assert (exited.killed, exited.lost) == (False, False)

    play(scenario)


@pytest.mark.parametrize(
    ("error", "is_final", "loss"),
    [
        (LaunchError("no such interpreter"), True, None),
        (StartFailed("no memory"), False, None),
        (StartFailed("killed", Loss.FORK_SERVER), False, Loss.FORK_SERVER),
    ],
)
def test_a_gang_that_cannot_be_started_says_whether_another_try_may_help(
    play: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    is_final: bool,
    loss: Loss | None,
) -> None:
    async def scenario(runner: Runner, launches: Launches) -> None:
        launches.error = error
        exited = await ended(await started(runner, make_plan("1.1.1", [])))
        assert (exited.error, exited.error_is_final) == (str(error), is_final)
        assert (exited.lost, exited.loss) == (loss is not None, loss or Loss.UNKNOWN)
        assert exited.exit_codes == {0: None, 1: None}

    play(scenario)
    assert f"allocation=1.1.1 was not started: {error}" in caplog.text


def test_a_gang_that_the_agent_cannot_carry_ends_when_its_ranks_are_gone(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gone: list[int] = []

    async def scenario(runner: Runner, launches: Launches) -> None:
        async def until_gone(pid: int) -> None:
            assert launches.killed == [2**30, 2**30 + 1]
            gone.append(pid)

        run = await started(runner, make_plan("1.1.1", []))
        monkeypatch.setattr(runner_module, "until_gone", until_gone)
        launches.exits["1.1.1"].put_nowait(RankExit(9, 0))  # of no rank
        exited = await ended(run)
        assert exited.error == "the agent could not run the ranks: KeyError: 9; see agent.log"
        assert (exited.error_is_final, exited.lost, exited.killed) == (False, False, False)
        assert gone == launches.killed
        assert not runner.has_living_gangs

    play(scenario)
    assert "allocation=1.1.1 is broken off" in caplog.text


def test_a_run_whose_folder_cannot_be_made_ends_at_once(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(_: AgentRun) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(AgentRun, "prepare", prepare)

    async def scenario(runner: Runner, _: Launches) -> None:
        exited = await ended(await started(runner, make_plan("1.1.1", [])))
        assert exited.error.startswith("the run's folder cannot be made: [Errno 28]")
        assert not exited.error_is_final
        assert not runner.has_living_gangs

    play(scenario)


def test_ranks_that_do_not_die_are_waited_for_no_longer_than_said(
    play: Callable[..., None],
) -> None:
    async def scenario(runner: Runner, launches: Launches) -> None:
        run = await started(runner, make_plan("1.1.1", []))
        launches.dies = False
        await runner.lose(Loss.MASTER, 0.0)
        assert runner.has_living_gangs
        for rank in (0, 1):
            launches.exits["1.1.1"].put_nowait(RankExit(rank, -9))
        exited = await ended(run)
        assert (exited.lost, exited.loss) == (True, Loss.MASTER)

    play(scenario)


@pytest.mark.parametrize("other", ["a", "b"])
def test_errors_of_the_devices_are_told_with_the_rank_that_failed(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    fault = DeviceFault(index=0, at=5.0, xid=79)
    asked: list[Any] = []

    def note_log(_: DeviceHealth, now: float) -> None:
        asked.append("the log")

    def faults_of(_: DeviceHealth, slots: Any, since: float, pids: Any) -> dict[int, DeviceFault]:
        asked.append((sorted(slots), since > 1.0, sorted(pids)))
        return {4: fault}

    monkeypatch.setattr(DeviceHealth, "faults_of", faults_of)
    monkeypatch.setattr(DeviceHealth, "note_log", note_log)

    async def scenario(runner: Runner, launches: Launches) -> None:
        async def next_reading(timeout_s: float) -> None:
            asked.append("a reading")

        readings: Any = SimpleNamespace(next=next_reading)
        runner.devices["a"] = WatchPlan(
            interval_s=1.0,
            health=DeviceHealth([GPU]),
            readings=readings,
            open=lambda: None,  # type: ignore[arg-type, return-value]
        )
        slots = [GPU, GPU.model_copy(update={"id": 7})]
        run = await started(runner, make_plan("1.1.1", [], slots=slots, agent_ids=[other, "b"]))
        launches.exits["1.1.1"].put_nowait(RankExit(1, 1))
        exited = await ended(run)
        assert exited.first_failed == 1
        assert exited.faults == ({0: fault} if other == "a" else {})

    play(scenario)
    pids = [2**30, 2**30 + 1]
    assert asked == (["a reading", "the log", ([4], True, pids)] if other == "a" else [])


@pytest.mark.parametrize("order", ["kill", "lose", "break off"])
def test_a_gang_that_is_being_started_is_started_no_more_when_its_end_is_ordered(
    play: Callable[..., None], order: str
) -> None:
    async def scenario(runner: Runner, launches: Launches) -> None:
        launches.is_slow = True
        runner.carry_out(StartGang(plan=make_plan("1.1.1", [])), agent_id="a")
        run = runner.runs_of("a")["1.1.1"]
        await asyncio.sleep(0)
        if order == "kill":
            runner.carry_out(KillGang(allocation_id="1.1.1"), agent_id="a")
        elif order == "lose":
            await runner.lose(Loss.MASTER, 60.0)
        else:
            runner.break_off(run, "no room", no_room=True)
        exited = await ended(run)
        assert (exited.killed, exited.lost, exited.not_saved) == (
            order == "kill", order == "lose", order == "break off",
        )  # fmt: skip
        assert exited.exit_codes == {0: None, 1: None}

    play(scenario)


def test_the_memory_is_looked_at_when_the_first_rank_fails_and_at_no_other_exit(
    play: Callable[..., None],
) -> None:
    asked: list[Any] = []

    def look(*given: Any) -> MemoryEvidence:
        asked.append(given)
        return MemoryEvidence(had_memory=True)

    async def scenario(runner: Runner, launches: Launches) -> None:
        runner.memory = cast(
            MemoryWatch, SimpleNamespace(started=lambda: asked.append("started"), look=look)
        )
        run = await started(runner, make_plan("1.1.1", [], slots=3))
        for rank, code in ((0, 0), (1, 3)):
            launches.exits["1.1.1"].put_nowait(RankExit(rank, code))
        exited = await ended(run)
        assert (exited.exit_codes, exited.had_memory) == ({0: 0, 1: 3, 2: -9}, True)

    play(scenario)
    assert asked == ["started", ("1.1.1", 1, 3, {1: 2**30 + 1, 2: 2**30 + 2})]


def test_processes_of_a_gang_that_cannot_be_noted_run_all_the_same(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(runner_module, "write_records", fail)

    async def scenario(runner: Runner, _: Launches) -> None:
        run = await started(runner, make_plan("1.1.1", []))
        assert run.exited is None
        assert f"allocation=1.1.1: {run.dir.ranks} cannot be written: " in caplog.text

    play(scenario)


@pytest.mark.parametrize("is_program", [True, False])
def test_what_a_program_has_started_is_ended_before_its_end_is_journaled(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch, is_program: bool
) -> None:
    done: list[Any] = []
    monkeypatch.setattr(runner_module, "kill_run_processes", lambda folder: done.append(folder))
    monkeypatch.setattr(runner_module, "write_end", lambda *given: done.append(given))

    async def scenario(runner: Runner, launches: Launches) -> None:
        config = {"entrypoint": "python3 train.py"} if is_program else {}
        run = await started(runner, make_plan("1.1.1", [], slots=1, config=config))
        launches.exits["1.1.1"].put_nowait(RankExit(0, 0))
        exited = await ended(run)
        assert done == ([run.dir, (run.plan, run.dir, exited)] if is_program else [])

    play(scenario)


def test_gangs_whose_code_reads_requests_may_leave_before_the_agent_exits(
    play: Callable[..., None],
) -> None:
    async def scenario(runner: Runner, launches: Launches) -> None:
        reads = await started(runner, make_plan("1.1.1", [], slots=1))
        other = await started(runner, make_plan("2.1.1", [], slots=1))
        with reads.open_page() as page:
            page.check("preempt")
            saving = asyncio.create_task(runner.save(60.0))
            while not page.is_raised("preempt"):
                await asyncio.sleep(0)
        launches.exits["1.1.1"].put_nowait(RankExit(0, 0))
        await saving
        assert (reads.exited is not None, other.exited) == (True, None)
        with other.open_page() as page:
            assert not page.is_raised("preempt")
        await runner.save(60.0)  # nothing is left to wait for

    play(scenario)


@pytest.mark.parametrize("order", ["kill", "lose"])
def test_the_end_that_was_ordered_first_is_the_cause_until_all_is_cleaned_up(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """Of a program all processes are ended, and meanwhile another order may arrive."""

    async def scenario(runner: Runner, launches: Launches) -> None:
        loop = asyncio.get_running_loop()

        async def order_more() -> None:
            runner.carry_out(KillGang(allocation_id="1.1.1"), agent_id="a")
            await runner.lose(Loss.MASTER, 0.0)

        def clean_up(_: object) -> None:
            asyncio.run_coroutine_threadsafe(order_more(), loop).result()

        monkeypatch.setattr(runner_module, "kill_run_processes", clean_up)
        launches.is_slow = True
        plan = make_plan("1.1.1", [], config={"entrypoint": "python3 train.py"})
        runner.carry_out(StartGang(plan=plan), agent_id="a")
        await asyncio.sleep(0)
        if order == "kill":
            runner.carry_out(KillGang(allocation_id="1.1.1"), agent_id="a")
        else:
            await runner.lose(Loss.LEAVING, 0.0)
        exited = await ended(runner.runs_of("a")["1.1.1"])
        assert (exited.killed, exited.lost) == (order == "kill", order == "lose")

    play(scenario)
