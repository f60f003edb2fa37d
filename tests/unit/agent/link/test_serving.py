"""How long an agent process serves, and when it ends its gangs."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter.agent.devices.offered_slots import Offer
from det_jupyter.agent.link import agent_service
from det_jupyter.agent.link.agent_service import AgentService, keep_lease, serve
from det_jupyter.agent.run_agent import leave
from det_jupyter.agent.runs.lease import Lease
from det_jupyter.agent.runs.runner import Runner
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.connection_files import write_connection_file
from det_jupyter.contract.host.interrupts import Interrupts
from det_jupyter.contract.messages import (
    AgentReports,
    Chunk,
    Leave,
    Loss,
    Offsets,
    RankKernel,
)
from det_jupyter.errors import MasterUnreachable
from tests.integration.agent_support import remote_master
from tests.unit.agent.link.test_agent_service import (
    CREDENTIALS,
    SLOT,
    Master,
    add_run,
    make_runner,
    play,
    until,
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    monkeypatch.setattr(agent_service, "_PAUSES_S", (0.0, 0.0))
    return tmp_path


class PlayedLease:
    """A lease; `unanswered_s` is as the test says."""

    fence_s = 60.0

    def __init__(self) -> None:
        self.unanswered_s = 0.0
        self.calls: list[str] = []

    def keep_watched(self) -> None:
        self.calls.append("watch")

    def release(self) -> None:
        self.calls.append("release")


def test_gangs_are_ended_when_the_master_has_not_answered_for_too_long(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(agent_service, "_IDLE_POLL_S", 0.0)
    lease, lost = PlayedLease(), list[tuple[Loss, float]]()

    async def lose(loss: Loss, timeout_s: float) -> None:
        lost.append((loss, timeout_s))
        runner.has_living_gangs = False

    runner = SimpleNamespace(has_living_gangs=True, lose=lose)

    async def act() -> None:
        keeping = asyncio.create_task(keep_lease(cast(Lease, lease), cast(Runner, runner)))
        lease.unanswered_s = lease.fence_s
        await until(lambda: len(lease.calls) >= 3)
        assert (lost, set(lease.calls)) == ([], {"watch"})
        lease.unanswered_s = lease.fence_s + 1
        await until(lambda: "release" in lease.calls)
        keeping.cancel()

    asyncio.run(act())
    assert lost == [(Loss.MASTER, 1.0)]
    assert "the master has not answered for 60 s: the gangs are ended" in caplog.text


@pytest.mark.parametrize(("grace_s", "saves_s", "left_s"), [(500.0, 494, 499), (5.0, 2, 4)])
def test_gangs_may_save_within_the_time_that_an_agent_has_to_exit(
    folder: Path, monkeypatch: pytest.MonkeyPatch, grace_s: float, saves_s: int, left_s: int
) -> None:
    calls = list[tuple[str, float | None]]()

    async def act() -> None:
        runner = make_runner(folder)
        monkeypatch.setattr(agent_service, "open_link", Master().open)
        service = AgentService(offer=Offer(agent_id="b", slots=[SLOT]), session="s", runner=runner)

        async def save(timeout_s: float) -> None:
            calls.append(("save", round(timeout_s)))

        async def lose(loss: Loss, timeout_s: float) -> None:
            calls.append((loss, timeout_s))

        async def report(left_s: float | None) -> None:
            calls.append(("report", left_s and round(left_s)))

        monkeypatch.setattr(runner, "save", save)
        monkeypatch.setattr(runner, "lose", lose)
        monkeypatch.setattr(service, "report_exits", report)
        now = asyncio.get_running_loop().time()
        runner.leave_by(now + grace_s)
        runner.leave_by(now + 900.0)  # a second signal
        await serve([service], runner=runner, leave_after_s=3600.0)

    asyncio.run(act())
    assert calls == [("save", saves_s), (Loss.LEAVING, 1.0), ("report", left_s)]


def test_a_second_interrupt_ends_gangs_that_save_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    calls = list[str]()
    now = 10.0
    interrupts = Interrupts(lambda: now)

    async def act() -> None:
        runner = make_runner(folder)
        monkeypatch.setattr(agent_service, "open_link", Master().open)
        service = AgentService(offer=Offer(agent_id="b", slots=[SLOT]), session="s", runner=runner)

        async def save(timeout_s: float) -> None:
            nonlocal now
            calls.append("save")
            leave(runner, signal.SIGTERM, 500.0, interrupts)  # a job of Slurm may signal twice
            now += 0.2
            leave(runner, signal.SIGINT, 500.0, interrupts)  # the first one, delivered again
            assert not runner.hurried.is_set()
            now += 0.2
            leave(runner, signal.SIGINT, 500.0, interrupts)
            await asyncio.Event().wait()

        async def lose(loss: Loss, timeout_s: float) -> None:
            calls.append(loss)

        async def report(left_s: float | None) -> None:
            calls.append(f"report within {left_s} s")

        monkeypatch.setattr(runner, "save", save)
        monkeypatch.setattr(runner, "lose", lose)
        monkeypatch.setattr(service, "report_exits", report)
        leave(runner, signal.SIGINT, 500.0, interrupts)
        await serve([service], runner=runner, leave_after_s=3600.0)

    asyncio.run(act())
    assert calls == ["save", Loss.LEAVING, "report within 1.0 s"]
    assert "save their state and leave, within 500 s; Ctrl-C once more ends all" in caplog.text


@pytest.mark.parametrize("cause", ["order", "no master"])
def test_serving_ends_by_order_or_when_nobody_needs_the_agent(
    folder: Path, monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    monkeypatch.setattr(agent_service, "_IDLE_POLL_S", 0.0)

    async def act() -> Master:
        master, runner = Master(), make_runner(folder)
        monkeypatch.setattr(agent_service, "open_link", master.open)
        lost: list[Loss] = []

        async def lose(loss: Loss, timeout_s: float) -> None:
            lost.append(loss)

        monkeypatch.setattr(runner, "lose", lose)
        offer = Offer(agent_id="b", slots=[SLOT])
        service = AgentService(offer=offer, session="s", runner=runner)
        if cause == "no master":
            master.failures = [MasterUnreachable("gone")] * 10**6
        stays_s = 0.02 if cause == "no master" else 3600.0
        serving = asyncio.create_task(serve([service], runner=runner, leave_after_s=stays_s))
        if cause == "order":
            await until(lambda: master.registered)
            runner.carry_out(Leave(), agent_id="b")
        await serving
        assert lost == [Loss.LEAVING]
        num = len(master.places)
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(master.places) == num  # it connects no more
        return master

    master = asyncio.run(act())
    assert bool(master.registered) is (cause == "order")


@pytest.mark.parametrize(
    ("has_gangs", "unlinked_s", "is_needed"),
    [
        (False, (0.0, 0.0), True),
        (False, (99.0, 0.0), True),  # one of its agents is linked
        (False, (59.0, 60.0), True),
        (False, (61.0, 60.0), False),
        (True, (61.0, 60.0), True),
    ],
)
def test_an_agent_process_is_needed_while_it_has_gangs_or_one_of_its_agents_a_master(
    monkeypatch: pytest.MonkeyPatch,
    has_gangs: bool,
    unlinked_s: tuple[float, float],
    is_needed: bool,
) -> None:
    monkeypatch.setattr(agent_service, "_IDLE_POLL_S", 0.0)
    services: Any = [SimpleNamespace(unlinked_s=seconds) for seconds in unlinked_s]
    runner: Any = SimpleNamespace(has_living_gangs=has_gangs)
    waiting = agent_service._until_not_needed(services, runner, 60.0)
    assert returns_at_once(waiting) is not is_needed


def test_a_fault_while_serving_ends_the_agent_with_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act() -> None:
        runner = make_runner(folder)
        offer = Offer(agent_id="b", slots=[SLOT])
        service = AgentService(offer=offer, session="s", runner=runner)

        async def fail() -> None:
            raise RuntimeError("a fault of ours")

        monkeypatch.setattr(service, "keep_linked", fail)
        with suppress(asyncio.CancelledError):
            await serve([service], runner=runner, leave_after_s=3600.0)

    with pytest.raises(RuntimeError, match="a fault of ours"):
        asyncio.run(act())


def serve_remote(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    scenario: Callable[[AgentService, Master, Runner], Awaitable[None]],
) -> Master:
    return play(folder, monkeypatch, scenario, credentials=CREDENTIALS, remote=remote_master())


def is_longer(told: list[str], number: int) -> bool:
    return len(told) > number


def returns_at_once(work: Coroutine[Any, Any, None]) -> bool:
    """Return whether it is done without waiting for anything."""
    try:
        work.send(None)
    except StopIteration:
        return True
    work.close()
    return False


def test_an_agent_elsewhere_that_leaves_waits_until_the_master_knows_it_has_no_slots(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: AgentService, master: Master, runner: Runner) -> None:
        await until(lambda: master.registered)
        assert returns_at_once(service.report_exits())
        service.leave()
        assert not returns_at_once(service.report_exits())
        await service.report_exits()
        assert [len(told.slots) for told in master.registered] == [1, 0]
        service.leave()  # it is told again, and nothing changes

    serve_remote(folder, monkeypatch, scenario)


@pytest.mark.parametrize("is_remote", [True, False])
def test_the_end_of_an_agent_waits_only_so_long_for_a_master_that_stores_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, is_remote: bool
) -> None:
    monkeypatch.setattr(agent_service, "_REMOTE_ENDING_S", 0.0 if is_remote else 3600.0)
    monkeypatch.setattr(agent_service, "_ENDING_S", 3600.0 if is_remote else 0.0)

    async def scenario(service: AgentService, master: Master, runner: Runner) -> None:
        add_run(runner, folder, code=0)
        if not is_remote:
            await until(lambda: master.registered)
            runner.runs_of("b")["1.1.1"].exit_sent_at = None
        service.leave()  # a remote one has not registered yet
        assert returns_at_once(service.report_exits())

    play(folder, monkeypatch, scenario, credentials=CREDENTIALS if is_remote else None)


@pytest.mark.parametrize("is_alive", [True, False])
def test_new_lines_of_a_run_are_found_without_news_of_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch, is_alive: bool
) -> None:
    often = "_POLL_S" if is_alive else "_WAIT_S"
    for name in ("_POLL_S", "_WAIT_S", "BEAT_S"):
        monkeypatch.setattr(agent_service, name, 0.001 if name == often else 3600.0)
    monkeypatch.setattr(agent_service, "_REST_S", 0.0)

    async def report(master: Master, reports: AgentReports) -> Offsets:
        for chunk in (each for each in reports.reports if isinstance(each, Chunk)):
            told.append(chunk.text)
            master.offsets = {"1.1.1": {chunk.stream: chunk.offset + chunk.size_bytes}}
        return Offsets(offsets=master.offsets)

    async def scenario(service: AgentService, master: Master, runner: Runner) -> None:
        add_run(runner, folder, code=None if is_alive else 0)
        for number in (1, 2):
            with runner.runs_of("b")["1.1.1"].dir.output(0).open("a") as file:
                file.write(f"{number}\n")
            await until(partial(is_longer, told, number - 1))

    told: list[str] = []
    monkeypatch.setattr(Master, "report", report)
    play(folder, monkeypatch, scenario)
    assert told == ["1\n", "2\n"]


def test_kernels_of_ranks_are_told_to_a_master_elsewhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def announce(_: Master, kernel: RankKernel) -> str:
        told.append(kernel)
        return ""

    async def scenario(service: AgentService, master: Master, runner: Runner) -> None:
        add_run(runner, folder)
        file = runner.runs_of("b")["1.1.1"].dir.connection_file(1)
        write_connection_file(file, prefix=str(folder / "1"), key="5e" * 32)
        await until(lambda: told)

    told: list[RankKernel] = []
    monkeypatch.setattr(Master, "announce", announce)
    serve_remote(folder, monkeypatch, scenario)
    assert told == [RankKernel(allocation_id="1.1.1", rank=1, key="5e" * 32)]
