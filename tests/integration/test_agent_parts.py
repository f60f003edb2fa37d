"""A gang on several computers: two runners, each with its agent and its part of the ranks."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from det_jupyter.agent.runs import runner as runner_module
from det_jupyter.agent.runs.run import AgentRun, adopt_runs, new_run
from det_jupyter.agent.runs.runner import Runner
from det_jupyter.agent.starting.launcher import Launcher
from det_jupyter.agent.starting.spawn import Spawner
from det_jupyter.agent.starting.zygote_process import ZygoteProcess
from det_jupyter.agent.starting.zygotes import Zygotes
from det_jupyter.agent.tunnel.listener import GangListener
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.messages import GangExited, GangLink, GangPlan, Loss, StartGang
from tests.forks import torch_source
from tests.integration.agent_support import STAND_IN, make_plan, remote_master
from tests.unit.agent.tunnel.test_tunnel import certificate

ID = "1.1.1"


class Computers:
    """Runners of agents `a` and `b`, as on two computers; rank 0 is on `a`."""

    def __init__(
        self, root: Path, zygotes: dict[str, Zygotes], lifelines: dict[str, int],
        pair: tuple[str, str],
    ) -> None:  # fmt: skip
        self.root = root
        self._zygotes = zygotes
        self._lifelines = lifelines
        self._certificate, self._key = pair
        self.listener = GangListener()
        self.runners: dict[str, Runner] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self.listener.open()
        for name in ("a", "b"):
            sockets = self.root / name
            sockets.mkdir()
            self.runners[name] = Runner(
                agents=[name],
                adopted=[],
                launcher=Launcher(self._zygotes[name], Spawner()),
                lifeline_fd=self._lifelines[name],
                socket_dir=sockets,
                num_threads=1,
                remote=remote_master(listener=self.listener) if name == "a" else None,
            )
        try:
            yield
        finally:
            for runner in self.runners.values():
                await runner.lose(Loss.LEAVING, 5)
            self.listener.close()

    def start(self, acts: Any, homes: list[str], *, on: str, **changes: Any) -> None:
        """Order an agent to start its part."""
        link = GangLink(
            agents=["a", "b"],
            addresses=["127.0.0.1", "127.0.0.1"],
            ports=[self.listener.port, 0],
            certificate=self._certificate,
            key=self._key if on == "a" else "",
            secret="5e" * 32,
        )
        plan = make_plan(ID, acts, slots=len(homes), agent_ids=homes, **changes)
        self.runners[on].carry_out(StartGang(plan=plan, link=link), agent_id=on)

    def run(self, name: str) -> AgentRun:
        return self.runners[name].runs_of(name)[ID]

    async def exit_of(self, name: str) -> GangExited:
        while (exited := self.run(name).exited) is None:
            await asyncio.sleep(0.005)
        return exited


def fork_zygote(lifeline: int) -> tuple[ZygoteProcess, int]:
    """Start a fork server as `start_zygote` does, but one that has loaded torch.

    Also return the number that the lifeline has there.
    """
    log = paths.log_dir() / "zygote.out"
    ours, theirs = socket.socketpair()
    with theirs:
        fork = torch_source().start(
            "tests.integration.parallel_ranks:become_zygote",
            STAND_IN,
            folder=paths.data_dir(),
            outputs=[log, log],
            descriptors=[theirs.fileno(), lifeline],
        )
    process = cast("subprocess.Popen[bytes]", fork)  # it has the methods that are used
    started = ZygoteProcess(python=sys.executable, process=process, connection=ours, log=log)
    return started, fork.descriptors[1]


Play = Callable[[Callable[[Computers], Any]], None]


@pytest.fixture
def play(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Play:
    """Return a function that runs a scenario with two computers."""
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))

    def new_run_here(plan: GangPlan, link: GangLink, *, agents: Any, **options: Any) -> AgentRun:
        run = new_run(plan, link, agents=agents, **options)
        run.dir = RunDir(run.dir.path.with_name(f"{run.id}-on-{next(iter(agents))}"))
        run.__post_init__()
        return run

    monkeypatch.setattr(runner_module, "new_run", new_run_here)

    def play_one(scenario: Callable[[Computers], Any]) -> None:
        lifeline, write_end = os.pipe()

        async def act() -> None:
            zygotes, lifelines = {}, {}
            for name in "ab":
                process, lifelines[name] = fork_zygote(lifeline)
                zygotes[name] = Zygotes(lifeline_fd=lifelines[name], target=STAND_IN)
                await zygotes[name].adopt(process)
            pair = certificate(tmp_path / "tls")
            with tempfile.TemporaryDirectory(prefix="parts-") as root:
                computers = Computers(Path(root), zygotes, lifelines, pair)
                try:
                    async with computers.running():
                        await scenario(computers)
                finally:
                    for each in zygotes.values():
                        await each.close()

        try:
            asyncio.run(act())
        finally:
            os.close(lifeline)
            os.close(write_end)

    return play_one


def test_ranks_on_two_computers_meet_and_each_agent_reports_its_own(
    play: Play, tmp_path: Path
) -> None:
    note = tmp_path / "met"

    async def scenario(computers: Computers) -> None:
        homes = ["a", "b", "b"]
        for name in ("b", "a"):
            computers.start([["meet", str(note)]], homes, on=name)
        exits = [await computers.exit_of(name) for name in ("a", "b")]
        assert [each.exit_codes for each in exits] == [{0: 0}, {1: 0, 2: 0}]
        for name, ranks in (("a", [0]), ("b", [1, 2])):
            run = computers.run(name)
            assert run.started is not None
            assert [each.rank for each in run.started.ranks] == ranks
            kinds = ("journal", "output")
            expected = [f"{kind}-{rank}" for kind in kinds for rank in ranks]
            assert [stream.name for stream in run.streams] == expected

    play(scenario)
    met = [json.loads(Path(f"{note}-{rank}").read_text()) for rank in range(3)]
    for rank, (local, cross) in enumerate([([0, 1], [0, 2]), ([0, 2], [1, 2]), ([1, 2], [1, 2])]):
        assert (met[rank]["local"], met[rank]["cross"]) == (local, cross)
        assert met[rank]["everyone"] == [0, 1, 2]
        assert met[rank]["neighbours"] == ([0] if rank == 0 else [1, 2])
        assert met[rank]["sum"] == 3
        assert met[rank]["interface"] == "lo"
    assert [each["local_chief"] for each in met] == [0, 1, 1]


def test_run_that_an_earlier_process_left_has_the_ranks_of_its_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    plan = make_plan(ID, [], slots=3, agent_ids=["a", "b", "b"])
    link = GangLink(
        agents=["a", "b"], addresses=["", ""], ports=[1, 1], certificate="C", secret="S" * 64
    )
    run = new_run(plan, link, agents=["b"], sockets=tmp_path / "s")
    run.prepare()
    (adopted,) = adopt_runs(now=1.0)
    assert adopted.exited == GangExited(
        allocation_id=ID, at=1.0, exit_codes={1: None, 2: None}, lost=True, loss=Loss.AGENT
    )
    streams = ["journal-1", "journal-2", "output-1", "output-2"]
    assert [stream.name for stream in adopted.streams] == streams
    written = [path.read_text(errors="replace") for path in run.dir.path.iterdir()]
    assert not any(link.secret in text for text in written)
