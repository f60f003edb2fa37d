"""How long an agent process serves, and when it ends its gangs."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from det_jupyter.agent.devices.offered_slots import Offer
from det_jupyter.agent.link import agent_service
from det_jupyter.agent.link.agent_service import AgentService, keep_lease, serve
from det_jupyter.agent.runs.lease import Lease
from det_jupyter.agent.runs.runner import Runner
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import Leave, Loss
from det_jupyter.errors import MasterUnreachable
from tests.unit.agent.link.test_agent_service import SLOT, Master, make_runner, until


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
