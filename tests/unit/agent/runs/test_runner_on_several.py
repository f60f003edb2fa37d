"""The part of a gang on several computers that an agent runs; parts and ranks are played."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter.agent.runs import held_parts
from det_jupyter.agent.runs import runner as module
from det_jupyter.agent.runs.run import AgentRun
from det_jupyter.agent.runs.runner import Runner
from det_jupyter.agent.starting.launcher import Launcher
from det_jupyter.agent.starting.rank_processes import RankExit, RankProcesses, StartFailed
from det_jupyter.agent.tunnel.dialing import Unreached
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import (
    CloseRun,
    Cut,
    GangExited,
    GangLink,
    GangNetwork,
    KillGang,
    Loss,
    RankSpec,
    StartGang,
)
from tests.integration.agent_support import make_plan, remote_master

ID = "1.1.1"
NETWORK = GangNetwork(addresses=["10.0.0.1", "10.0.0.2"], interface="eth0")
LINK = GangLink(
    agents=["a", "b"],
    addresses=["10.0.0.1", "10.0.0.2"],
    ports=[7, 8],
    certificate="",
    secret="5e",
)
CUT = Cut(from_agent="b", to_agent="a", why="no answer")


class World:
    """The other part, the lease and the ranks of agent `b`, whose rank is rank 1."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.opened: list[Any] = []
        self.network = NETWORK
        self.unreached: Unreached | None = None
        self.is_gathered, self.is_cut = asyncio.Event(), asyncio.Event()
        self.is_closed = asyncio.Event()
        self.has_expired = False
        self.start_fails = False
        self.specs: list[RankSpec] = []
        self.exits: asyncio.Queue[RankExit] = asyncio.Queue()
        self.killed: list[int] = []
        self._folder = folder
        monkeypatch.setattr(held_parts, "open_part", self._open_part)
        monkeypatch.setattr(module, "kill_group", self._kill)
        monkeypatch.setattr(module, "_SIGNAL_S", 0.0)
        monkeypatch.setattr(
            module, "used_interfaces", lambda network, variables: [network.interface, "ib0"]
        )

    @asynccontextmanager
    async def _open_part(
        self, allocation_id: str, link: GangLink, **how: Any
    ) -> AsyncIterator[Any]:
        self.opened.append((allocation_id, link, how))
        self.copies = how["copies"]
        try:
            yield self
        finally:
            self.is_closed.set()

    async def gather(self) -> None:
        if self.unreached is not None:
            raise self.unreached
        await self.is_gathered.wait()

    async def watch(self) -> Cut:
        await self.is_cut.wait()
        return CUT

    async def hold(self) -> int:
        return 3

    def has_expired_since(self, number: int) -> bool:
        assert number == 3
        return self.has_expired

    async def launch(
        self, plan: Any, specs: Callable[[], list[RankSpec]], _: asyncio.Event
    ) -> RankProcesses:
        if self.start_fails:
            raise StartFailed("the fork server died")
        self.specs = specs()
        return RankProcesses(pids={1: 2**30}, exits=self.exits, note="")

    def _kill(self, pid: int) -> None:
        self.killed.append(pid)
        self.exits.put_nowait(RankExit(1, -9))

    def start(self, *, is_remote: bool = True, **config: Any) -> tuple[Runner, AgentRun]:
        remote: Any = remote_master()
        remote = SimpleNamespace(lease=self, listener=remote.listener, address="10.0.0.9")
        runner = Runner(
            agents=["b"],
            adopted=[],
            launcher=cast(Launcher, self),
            lifeline_fd=-1,
            socket_dir=self._folder,
            num_threads=1,
            remote=remote if is_remote else None,
        )
        plan = make_plan(ID, [], agent_ids=["a", "b"], config=config)
        runner.carry_out(StartGang(plan=plan, link=LINK), agent_id="b")
        return runner, runner.runs_of("b")[ID]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    return World(monkeypatch, tmp_path)


async def until(holds: Callable[[], object]) -> None:
    while not holds():
        await asyncio.sleep(0)


async def ended(run: AgentRun) -> GangExited:
    await until(lambda: run.exited)
    await until(lambda: len(asyncio.all_tasks()) == 1)  # nothing is watched any more
    assert run.exited is not None
    return run.exited


@pytest.mark.parametrize("is_remote", [True, False])
def test_ranks_start_when_all_parts_are_prepared_and_know_the_network(
    world: World, tmp_path: Path, is_remote: bool
) -> None:
    async def act() -> GangExited:
        _, run = world.start(is_remote=is_remote)
        await until(lambda: world.opened)
        for _ in range(20):
            await asyncio.sleep(0)
        assert world.specs == []
        world.is_gathered.set()
        await until(lambda: run.started)
        assert run.started is not None
        assert (run.started.interface, [each.rank for each in run.started.ranks]) == (
            "eth0,ib0", [1],
        )  # fmt: skip
        ((allocation_id, link, how),) = world.opened
        assert (allocation_id, link) == (ID, LINK)
        assert run.sockets is not None
        assert how["store"] == run.sockets / "store"
        assert ([*how["agents"]], how["master"]) == (["b"], "10.0.0.9" if is_remote else "")
        assert (how["listener"] is not None) is is_remote
        (spec,) = world.specs
        assert (spec.network, spec.secret, spec.store) == (NETWORK, "5e", str(how["store"]))
        assert (spec.place.rank, spec.place.master_addr) == (1, "10.0.0.1")
        world.exits.put_nowait(RankExit(1, 0))
        return await ended(run)

    exited = asyncio.run(act())
    assert (exited.exit_codes, exited.lost, exited.cut) == ({1: 0}, False, None)


def end_without_the_others(world: World) -> None:
    world.unreached = Unreached(CUT)


def cut_while_it_trains(world: World) -> None:
    world.is_gathered.set()
    world.is_cut.set()


def lose_the_lease_in_the_start(world: World) -> None:
    world.is_gathered.set()
    world.start_fails = world.has_expired = True


def fail_in_the_start(world: World) -> None:
    world.is_gathered.set()
    world.start_fails = True


def lose_the_lease(world: World) -> None:
    world.is_gathered.set()
    world.has_expired = True
    world.exits.put_nowait(RankExit(1, -9))


def fail(world: World) -> None:
    world.is_gathered.set()
    world.exits.put_nowait(RankExit(1, -9))


START_FAILED = "the fork server died"


@pytest.mark.parametrize(
    ("happens", "loss", "cut", "error", "code"),
    [
        (end_without_the_others, Loss.CUT, CUT, "", None),
        (cut_while_it_trains, Loss.CUT, CUT, "", -9),
        (lose_the_lease_in_the_start, Loss.MASTER, None, START_FAILED, None),
        (fail_in_the_start, None, None, START_FAILED, None),
        (lose_the_lease, Loss.MASTER, None, "", -9),
        (fail, None, None, "", -9),
    ],
)
def test_a_part_that_cannot_stay_says_why(
    world: World,
    caplog: pytest.LogCaptureFixture,
    happens: Callable[[World], None],
    loss: Loss | None,
    cut: Cut | None,
    error: str,
    code: int | None,
) -> None:
    async def act() -> GangExited:
        happens(world)
        _, run = world.start()
        return await ended(run)

    exited = asyncio.run(act())
    assert (exited.lost, exited.loss) == (loss is not None, loss or Loss.UNKNOWN)
    assert (exited.cut, exited.error, exited.exit_codes) == (cut, error, {1: code})
    assert (exited.killed, exited.first_failed) == (False, 1 if happens is fail else None)
    assert world.killed == [2**30] * (loss is not None and code is not None)
    assert (f"allocation=1.1.1: {CUT.sentence}" in caplog.text) is (cut is not None)


def test_a_part_that_waits_for_the_others_can_be_killed(world: World) -> None:
    async def act() -> GangExited:
        runner, run = world.start()
        await until(lambda: world.opened)
        runner.carry_out(KillGang(allocation_id=ID), agent_id="b")
        return await ended(run)

    exited = asyncio.run(act())
    assert (exited.killed, exited.lost, exited.exit_codes) == (True, False, {1: None})


def test_copies_of_ranks_that_have_ended_are_there_until_the_run_is_closed(world: World) -> None:
    async def act() -> None:
        runner, run = world.start(optimizations={"sharding": "fsdp"})
        world.is_gathered.set()
        await until(lambda: run.started)
        copy = run.dir.copy(1, 0)
        copy.write_bytes(b"state")
        world.exits.put_nowait(RankExit(1, -9))
        await until(lambda: run.exited)
        await asyncio.sleep(0)
        assert (copy.read_bytes(), world.is_closed.is_set()) == (b"state", False)
        runner.carry_out(CloseRun(allocation_id=ID), agent_id="b")
        await world.is_closed.wait()
        await until(lambda: not copy.exists())

    asyncio.run(act())
