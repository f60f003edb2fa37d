"""An agent on another computer that exits is given no more gangs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from det_jupyter.agent.devices.offered_slots import Offer
from det_jupyter.agent.link import agent_service
from det_jupyter.agent.link.agent_service import AgentService
from det_jupyter.agent.runs.runner import Runner
from det_jupyter.agent.starting.launcher import Launcher
from det_jupyter.contract.messages import (
    AgentCommand,
    AgentCredentials,
    AgentReports,
    Offsets,
    RegisterAgent,
    SlotView,
    StartGang,
)
from tests.integration.agent_support import make_plan

CREDENTIALS = AgentCredentials(agent="b", url="https://127.0.0.1:1", certificate="", token="t")


class Link:
    """A connection to a master that orders nothing."""

    def __init__(self, registered: list[int]) -> None:
        self._registered = registered

    async def clock_ahead_s(self) -> float:
        return 0.0

    async def register(self, registration: RegisterAgent) -> Offsets:
        self._registered.append(len(registration.slots))
        return Offsets(offsets={})

    async def report(self, _: AgentReports) -> Offsets:
        return Offsets(offsets={})

    async def commands(self) -> AsyncIterator[AgentCommand]:
        await asyncio.sleep(3600)
        return
        yield


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of the numbers of slots that were registered."""
    registered: list[int] = []

    @asynccontextmanager
    async def open_link(**_: Any) -> AsyncIterator[Link]:
        yield Link(registered)

    monkeypatch.setattr(agent_service, "open_link", open_link)
    return registered


def make_service(folder: Path) -> AgentService:
    return AgentService(
        offer=Offer(agent_id="b", slots=[SlotView(id=0, kind="cpu", index=0, name="CPU")]),
        session="1",
        runner=Runner(
            agents=["b"],
            adopted=[],
            launcher=cast(Launcher, None),
            lifeline_fd=-1,
            socket_dir=folder,
            num_threads=1,
        ),
        credentials=CREDENTIALS,
    )


def test_agent_that_leaves_registers_again_without_slots(
    tmp_path: Path, registered: list[int]
) -> None:
    async def act() -> None:
        service = make_service(tmp_path)
        linking = asyncio.create_task(service.keep_linked())
        while not registered:
            await asyncio.sleep(0.01)
        service.leave()
        while len(registered) < 2:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        linking.cancel()

    asyncio.run(act())
    assert registered == [1, 0]


def test_agent_of_this_computer_that_leaves_has_its_successor_start_gangs(tmp_path: Path) -> None:
    async def act() -> None:
        runner = make_service(tmp_path)._runner
        runner.leave_ordered.set()
        # Reported as lost, it would be ordered again at once, until the trial is given up.
        runner.carry_out(StartGang(plan=make_plan("1.1.1", [])), agent_id="b")
        assert runner.runs_of("b") == {}

    asyncio.run(act())


@pytest.mark.parametrize("num_turns", range(4))
def test_agent_without_runs_leaves_at_once(
    tmp_path: Path, registered: list[int], num_turns: int
) -> None:
    async def act() -> None:
        service = make_service(tmp_path)
        linking = asyncio.create_task(service.keep_linked())
        while not registered:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        service.leave()
        for _ in range(num_turns):
            await asyncio.sleep(0)
        service.close()
        linking.cancel()
        await asyncio.wait({linking})

    asyncio.run(act())
