"""What an agent does when something fails that nobody has thought of: runs end, the link stays."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from det_jupyter.agent.devices.offered_slots import Offer
from det_jupyter.agent.link import agent_service
from det_jupyter.agent.link.agent_service import AgentService, serve
from det_jupyter.agent.link.master_link import MasterLink
from det_jupyter.agent.runs.run import AgentRun, new_run
from det_jupyter.agent.runs.runner import Runner
from det_jupyter.agent.runs.specs import make_specs
from det_jupyter.agent.runs.stopped_processes import report_stopped
from det_jupyter.agent.starting.launcher import Launcher
from det_jupyter.agent.starting.rank_processes import RankProcesses, StartFailed, has_ended
from det_jupyter.agent.starting.spawn import Spawner
from det_jupyter.agent.starting.zygotes import Zygotes
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.rundir import RUN_VARIABLE
from det_jupyter.contract.messages import (
    PROTOCOL,
    ForkRefused,
    GangExited,
    GangNetwork,
    Loss,
    RankSpec,
    StartGang,
    ZygoteReady,
)
from det_jupyter.contract.run.journal import Notice, parse_line
from det_jupyter.errors import LaunchError
from tests.integration.agent_support import make_plan


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))


class SleepingRanks:
    """A zygote, and all zygotes: its ranks are `sleep` processes."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []
        self.problem = ""

    async def get(self, python: str) -> SleepingRanks:
        return self

    async def ready(self) -> ZygoteReady:
        return ZygoteReady(protocol=PROTOCOL, version="", warmup_s=0.0)

    async def fork_gang(self, specs: list[RankSpec]) -> RankProcesses:
        self.processes = [subprocess.Popen(["sleep", "3600"], process_group=0) for _ in specs]
        pids = {rank: process.pid for rank, process in enumerate(self.processes)}
        return RankProcesses(pids=pids, exits=asyncio.Queue(), note="")


class NoZygotes:
    """As if no descriptor were free for the log of another zygote."""

    async def get(self, python: str) -> None:
        raise OSError(24, "Too many open files")


class StoppedZygote(SleepingRanks):
    """A zygote that was stopped while it loaded torch."""

    def __init__(self) -> None:
        super().__init__()
        self.process = subprocess.Popen(["sleep", "3600"])
        self.process.send_signal(signal.SIGSTOP)
        self.pid = self.process.pid

    async def ready(self) -> ZygoteReady:
        never: asyncio.Future[ZygoteReady] = asyncio.get_running_loop().create_future()
        return await never


def make_runner(zygotes: SleepingRanks | NoZygotes, folder: Path) -> Runner:
    folder.mkdir()
    return Runner(
        agents=["here"],
        adopted=[],
        launcher=Launcher(cast(Zygotes, zygotes), Spawner()),
        lifeline_fd=0,
        socket_dir=folder,
        num_threads=1,
    )


async def end_of_a_gang(runner: Runner, entrypoint: str = "") -> GangExited:
    plan = make_plan("1.1.1", [], config={"entrypoint": entrypoint})
    runner.carry_out(StartGang(plan=plan), agent_id="here")
    while (ended := runner.runs_of("here")["1.1.1"].exited) is None:
        await asyncio.sleep(0.01)
    assert not runner.has_living_gangs
    return ended


def test_gang_that_cannot_be_started_for_whatever_reason_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runner = make_runner(NoZygotes(), tmp_path / "sockets")
    ended = asyncio.run(end_of_a_gang(runner))
    assert ended.error == (
        "the agent could not run the ranks: OSError: [Errno 24] Too many open files; see agent.log"
    )
    assert not ended.error_is_final
    assert any(record.exc_info for record in caplog.records)


def test_a_zygote_that_is_stopped_while_it_loads_torch_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []

    def spawn_gang(_: Spawner, specs: list[RankSpec], *, note: str) -> RankProcesses:
        notes.append(note)
        raise LaunchError("far enough")

    monkeypatch.setattr(Spawner, "spawn_gang", spawn_gang)
    monkeypatch.setattr("det_jupyter.agent.starting.launcher._CHECK_S", 0.05)
    zygote = StoppedZygote()
    try:
        asyncio.run(end_of_a_gang(make_runner(zygote, tmp_path / "sockets")))
    finally:
        zygote.process.kill()
        zygote.process.wait()
    pid = zygote.pid
    assert notes == [
        f"started afresh: the zygote (process {pid}) is stopped; `kill -CONT {pid}` wakes it"
    ]


def test_ranks_that_nobody_can_follow_are_ended_before_the_gang_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(AgentRun, "note_started", fail)
    ranks = SleepingRanks()
    ended = asyncio.run(end_of_a_gang(make_runner(ranks, tmp_path / "sockets")))
    assert "RuntimeError: a fault of ours" in ended.error
    assert len(ranks.processes) == 2
    assert all(has_ended(process.pid) for process in ranks.processes)
    assert [process.wait() for process in ranks.processes] == [-9, -9]


class RefusingZygote(SleepingRanks):
    """A zygote that dies while it forks."""

    async def fork_gang(self, specs: list[RankSpec]) -> ForkRefused:  # type: ignore[override]
        return ForkRefused(allocation_id=specs[0].plan.allocation_id, reason="the zygote died")


def test_ranks_of_a_gang_on_several_computers_are_not_started_again_by_their_agent(
    tmp_path: Path,
) -> None:
    async def launch() -> None:
        plan = make_plan("1.1.1", [], agent_ids=["here", "there"])
        run = new_run(plan, agents=["here"], sockets=tmp_path)
        run.ranks = [0]
        network = GangNetwork(addresses=["10.0.0.1", "10.0.0.2"], interface="eth0")
        specs = partial(make_specs, run, network, lifeline_fd=0, num_threads=1)
        launcher = Launcher(cast(Zygotes, RefusingZygote()), Spawner())
        await launcher.launch(plan, specs, asyncio.Event())

    with pytest.raises(StartFailed, match="did not start: the zygote died"):
        asyncio.run(launch())


class RanksWithDaemon(SleepingRanks):
    """Ranks that have left a process in a session of its own."""

    async def fork_gang(self, specs: list[RankSpec]) -> RankProcesses:
        self.daemon = subprocess.Popen(
            ["sleep", "3600"],
            start_new_session=True,
            env={RUN_VARIABLE: specs[0].run_dir, "PATH": os.defpath},
        )
        return await super().fork_gang(specs)


def test_what_the_ranks_of_a_broken_off_run_have_left_is_ended_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(AgentRun, "note_started", fail)
    ranks = RanksWithDaemon()
    runner = make_runner(ranks, tmp_path / "sockets")
    ended = asyncio.run(end_of_a_gang(runner, "python3 train.py"))
    assert "RuntimeError: a fault of ours" in ended.error
    try:
        assert has_ended(ranks.daemon.pid)
    finally:
        ranks.daemon.kill()
        for process in (ranks.daemon, *ranks.processes):
            process.wait()


class FrozenRanks(SleepingRanks):
    """Ranks of which one is stopped at once."""

    async def fork_gang(self, specs: list[RankSpec]) -> RankProcesses:
        self.processes = [
            subprocess.Popen(
                ["sleep", "3600"],
                process_group=0,
                env={RUN_VARIABLE: spec.run_dir, "PATH": os.defpath},
            )
            for spec in specs
        ]
        self.processes[1].send_signal(signal.SIGSTOP)
        pids = {rank: process.pid for rank, process in enumerate(self.processes)}
        return RankProcesses(pids=pids, exits=asyncio.Queue(), note="")


def test_a_rank_that_is_stopped_is_named_once_in_its_own_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("det_jupyter.agent.runs.stopped_processes._CHECK_S", 0.02)
    ranks = FrozenRanks()
    runner = make_runner(ranks, tmp_path / "sockets")

    async def notices() -> list[str]:
        runner.carry_out(StartGang(plan=make_plan("1.1.1", [])), agent_id="here")
        folder = runner.runs_of("here")["1.1.1"].dir
        watching = asyncio.create_task(report_stopped(runner.living_gangs))
        while not folder.journal(1).exists():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)  # ten looks, or a few
        await runner.lose(Loss.LEAVING, 0.0)
        watching.cancel()
        assert not folder.journal(0).exists()
        return folder.journal(1).read_text().splitlines()

    (line,) = asyncio.run(notices())
    notice = parse_line(line)
    assert isinstance(notice, Notice)
    pid = ranks.processes[1].pid
    assert notice.rank == 1
    assert notice.text == (
        f"process {pid} of rank 1 is stopped, by a signal or a debugger, and other ranks may wait "
        f"for it; `kill -CONT {pid}` lets it continue"
    )
    assert [process.wait() for process in ranks.processes] == [-9, -9]


def test_link_that_breaks_unexpectedly_is_tried_again_and_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[dict[str, str]] = []

    @asynccontextmanager
    async def open_link(**place: str) -> AsyncIterator[MasterLink]:
        tries.append(place)
        raise OSError(24, "Too many open files")
        yield

    monkeypatch.setattr(agent_service, "open_link", open_link)
    monkeypatch.setattr(agent_service, "_PAUSES_S", (0.01, 0.01))
    runner = make_runner(NoZygotes(), tmp_path / "sockets")
    agent = AgentService(offer=Offer(agent_id="here", slots=[]), session="1", runner=runner)
    asyncio.run(serve([agent], runner=runner, leave_after_s=0.5))
    assert len(tries) > 1
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.getMessage() == "the link to the master broke; it is tried again"
