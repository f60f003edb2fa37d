"""The whole agent in the test's own process, with a fork server and a master that are played."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import io
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.agent import __main__ as main_module
from det_jupyter.agent import run_agent as module
from det_jupyter.agent.devices.offered_slots import Offer
from det_jupyter.agent.link import agent_service
from det_jupyter.agent.run_agent import run_agent
from det_jupyter.agent.runs.runner import Runner
from det_jupyter.agent.starting.spawn import Spawner
from det_jupyter.agent.starting.zygote_process import RANK_TARGET, ZygoteProcess
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import (
    AgentCredentials,
    DevicesSeen,
    GangExited,
    Leave,
    Loss,
    RunReport,
    StartGang,
)
from det_jupyter.errors import AgentDismissed, MasterUnreachable
from tests.integration.agent_support import FakeMaster, make_plan

CREDENTIALS = AgentCredentials(agent="ray-1", url="https://10.0.0.1:7", certificate="", token="t")


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    monkeypatch.setenv("DET_JUPYTER_CPU_SLOTS", "3")
    for folder in (paths.log_dir(), paths.data_dir(), paths.runtime_dir()):
        folder.mkdir(parents=True, exist_ok=True)


@contextmanager
def fork_server() -> Iterator[ZygoteProcess]:
    """Return a fork server that never answers."""
    ours, theirs = socket.socketpair()
    with theirs, ours, subprocess.Popen(["sleep", "3600"]) as process:
        try:
            yield ZygoteProcess(
                python=sys.executable,
                process=process,
                connection=ours,
                log=paths.log_dir() / "zygote.out",
            )
        finally:
            process.kill()


def options(**changes: Any) -> argparse.Namespace:
    defaults = {
        "target": "module:function",
        "agent": [],
        "port": 0,
        "address": "",
        "leave_after_s": 3600.0,
        "fence_after_s": None,
        "grace_s": 3600.0,
    }
    return argparse.Namespace(**defaults | changes)


@pytest.mark.parametrize(
    ("agents", "slots"),
    [([], {socket.gethostname(): 3}), (["left=cpu:1", "right=cpu:2"], {"left": 1, "right": 2})],
)
def test_an_agent_offers_its_slots_adopts_runs_and_leaves_as_ordered(
    tmp_path: Path, agents: list[str], slots: dict[str, int]
) -> None:
    left = next(iter(slots))
    folder = paths.data_dir() / "runs" / "7.1.1"
    folder.mkdir(parents=True)
    plan = make_plan("7.1.1", [], agent_ids=[left, left])
    (folder / "plan.json").write_text(plan.model_dump_json())
    master = FakeMaster(tmp_path)
    master.start()

    async def act(first: ZygoteProcess) -> None:
        running = asyncio.create_task(run_agent(first, 0, options(agent=agents), ""))
        while len(master.linked) < len(slots) or not master.exited:
            await asyncio.sleep(0.005)
        assert len([*paths.runtime_dir().glob("agent.sockets")]) == 1
        late = make_plan("8.1.1", [], slots=1, agent_ids=[left])
        master.order(StartGang(plan=late), to=left)  # it waits for the fork server
        while not (folder.parent / "8.1.1" / "plan.json").exists():
            await asyncio.sleep(0.005)
        master.order(Leave(), to=left)
        await running
        assert first.process.poll() is not None
        for _ in range(10):  # what was cancelled ends
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    try:
        with fork_server() as first:
            asyncio.run(act(first))
    finally:
        master.stop()
    assert {name: len(told[0].slots) for name, told in master.registered.items()} == slots
    sessions = {told[0].session for told in master.registered.values()}
    assert len(sessions) == 1
    assert master.registered[left][0].runs == [RunReport(allocation_id="7.1.1", alive=False)]
    assert master.exited["7.1.1"].loss is Loss.AGENT
    assert {run: exited.loss for run, exited in master.exited.items() if run == "8.1.1"} in (
        {}, {"8.1.1": Loss.LEAVING},
    )  # fmt: skip
    end = folder.parent / "8.1.1" / "exit.json"
    assert GangExited.model_validate_json(end.read_bytes()).loss is Loss.LEAVING
    assert not [*paths.runtime_dir().glob("agent.sockets")]
    assert master.mistakes == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_agent_leaves_at_a_signal_and_is_told_by_others_of_ranks_that_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    master, reaped = FakeMaster(tmp_path), list[Spawner]()
    monkeypatch.setattr(Spawner, "reap", lambda spawner: reaped.append(spawner))
    master.start()

    async def act(first: ZygoteProcess) -> None:
        running = asyncio.create_task(run_agent(first, 0, options(), ""))
        while not master.linked:
            await asyncio.sleep(0.005)
        reaped.clear()
        with subprocess.Popen(["true"]):
            while not reaped:
                await asyncio.sleep(0.005)
        os.kill(os.getpid(), number)
        await running

    try:
        with fork_server() as first:
            asyncio.run(act(first))
    finally:
        master.stop()
    assert len(master.registrations) == 1


def test_the_devices_of_an_agent_are_watched_if_it_has_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, made, first_ones = FakeMaster(tmp_path), list[Runner](), list[tuple[str, bool]]()
    devices: Any = object()

    def make_runner(**given: Any) -> Runner:
        made.append(Runner(**given))
        return made[-1]

    def watch_plan(offer: Offer, environ: Any, *, is_first: bool) -> Any:
        first_ones.append((offer.agent_id, is_first))
        return devices if offer.agent_id == "right" else None

    async def watch(given: Any, *, held: Any, report: Any, **_: Any) -> None:
        assert (given, held()) == (devices, [])
        report(DevicesSeen(at=7.0, processes={}))
        await asyncio.Event().wait()

    monkeypatch.setattr(module, "Runner", make_runner)
    monkeypatch.setattr(module, "watch_plan", watch_plan)
    monkeypatch.setattr(module, "watch", watch)
    master.start()

    async def act(first: ZygoteProcess) -> None:
        given = options(agent=["left=cpu:1", "right=cpu:2"])
        running = asyncio.create_task(run_agent(first, 0, given, ""))
        while "right" not in master.devices or len(master.linked) < 2:
            await asyncio.sleep(0.005)
        master.order(Leave(), to="left")
        await running

    try:
        with fork_server() as first:
            asyncio.run(act(first))
    finally:
        master.stop()
    assert first_ones == [("left", True), ("right", False)]
    assert made[0].devices == {"right": devices}
    assert {each.at for each in master.devices["right"]} == {7.0}
    assert "left" not in master.devices


def test_all_that_an_agent_watches_is_watched_until_it_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, made, begun, ended = FakeMaster(tmp_path), list[Runner](), dict[str, Any](), set[str]()

    def make_runner(**given: Any) -> Runner:
        made.append(Runner(**given))
        return made[-1]

    def play(name: str) -> Callable[..., Awaitable[None]]:
        async def watch(*given: Any) -> None:
            assert name not in begun
            begun[name] = given
            try:
                await asyncio.Event().wait()
            finally:
                ended.add(name)

        return watch

    monkeypatch.setattr(module, "Runner", make_runner)
    names = ("watch_room", "report_stopped", "watch_gangs", "watch_places", "keep_trimmed")
    for name in names:
        monkeypatch.setattr(module, name, play(name))
    sampler = SimpleNamespace(run=play("Sampler"))
    monkeypatch.setattr(module, "Sampler", lambda sampled, runner: sampler)
    master.start()

    async def act(first: ZygoteProcess) -> None:
        running = asyncio.create_task(run_agent(first, 0, options(agent=["left=cpu:1"]), ""))
        while not master.linked:
            await asyncio.sleep(0.005)
        master.order(Leave(), to="left")
        await running

    try:
        with fork_server() as first:
            asyncio.run(act(first))
    finally:
        master.stop()
    (runner,) = made
    assert begun == {
        "watch_room": (runner, None),  # the master sees the disks itself
        "report_stopped": (runner.living_gangs,),
        "watch_gangs": (runner.living_gangs, runner.news.set),
        "watch_places": (runner.living_gangs, runner.news),
        "keep_trimmed": ("agent.log", "zygote-*.out"),
        "Sampler": (),
    }
    assert ended == begun.keys()


def test_an_agent_elsewhere_that_is_dismissed_says_so_and_where(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def open_link(**place: Any) -> Any:
        asked.append(place)
        raise AgentDismissed("this token is of no agent")

    monkeypatch.setattr(agent_service, "open_link", open_link)
    given = options(fence_after_s=90.0)
    dismissed = r"^agent ray-1 ends: https://10.0.0.1:7: this token is of no agent$"
    with fork_server() as first, pytest.raises(SystemExit, match=dismissed):
        asyncio.run(run_agent(first, 0, given, CREDENTIALS.model_dump_json()))
    assert [(place["agent_id"], place["credentials"]) for place in asked] == [
        ("ray-1", CREDENTIALS)
    ]


def test_an_agent_elsewhere_that_nobody_needs_ends_without_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def open_link(**_: Any) -> Any:
        raise MasterUnreachable("gone")

    monkeypatch.setattr(agent_service, "open_link", open_link)
    given = options(fence_after_s=90.0, leave_after_s=0.0)
    with fork_server() as first:
        asyncio.run(run_agent(first, 0, given, CREDENTIALS.model_dump_json()))


def test_an_agent_elsewhere_whose_port_is_taken_says_so() -> None:
    with socket.create_server(("", 0)) as server, fork_server() as first:
        given = options(port=server.getsockname()[1])
        with pytest.raises(SystemExit, match=str(given.port)):
            asyncio.run(run_agent(first, 0, given, CREDENTIALS.model_dump_json()))


@pytest.mark.parametrize("text", ["no JSON", "{}", '{"agent": "b"}'])
def test_credentials_that_are_none_are_refused(text: str) -> None:
    with fork_server() as first, pytest.raises(SystemExit, match="stdin: expected the cred"):
        asyncio.run(run_agent(first, 0, options(), text))


class Started:
    """What the command line starts: the fork server's arguments, and those of the agent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.zygotes: list[tuple[str, str]] = []
        self.agents: list[tuple[argparse.Namespace, str]] = []
        self.keeps_share: list[bool] = []

        def start_zygote(python: str, *, lifeline_fd: int, target: str) -> str:
            assert os.get_blocking(lifeline_fd)
            self.zygotes.append((python, target))
            return "the fork server"

        async def run(first: Any, fd: int, options: argparse.Namespace, text: str) -> None:
            assert first == "the fork server"
            self.agents.append((options, text))

        def start_clean(*, keeps_share: bool) -> None:
            self.keeps_share.append(keeps_share)

        monkeypatch.setattr(main_module, "start_zygote", start_zygote)
        monkeypatch.setattr(main_module, "start_clean", start_clean)
        monkeypatch.setattr(module, "run_agent", run)
        monkeypatch.setattr(main_module, "_LOCK_S", 0.02)
        self.levels: list[int] = []
        monkeypatch.setattr(
            logging, "basicConfig", lambda *, level, format: self.levels.append(level)
        )
        monkeypatch.setattr(logging.getLogger("httpx"), "level", logging.NOTSET)


def run_main(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["agent", *words])
    return main_module.main()


def test_an_agent_of_this_computer_is_started_once(monkeypatch: pytest.MonkeyPatch) -> None:
    started = Started(monkeypatch)
    assert run_main(monkeypatch) == 0
    assert started.zygotes == [(sys.executable, RANK_TARGET)]
    assert started.keeps_share == [False]
    assert started.levels == [logging.INFO]
    assert logging.getLogger("httpx").level == logging.WARNING  # not a line for each request
    ((given, text),) = started.agents
    assert (given.agent, given.leave_after_s, given.fence_after_s, text) == ([], 60.0, None, "")
    assert (given.port, given.address) == (0, "")
    assert run_main(monkeypatch) == 0  # this process has the lock
    assert len(started.agents) == 1


def test_the_command_line_of_an_agent_elsewhere_is_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = Started(monkeypatch)
    monkeypatch.setattr(sys, "stdin", io.StringIO("the credentials"))
    words = "--credentials --port 7 --address 10.0.0.2 --leave-after-s 5 --fence-after-s 90"
    words += " --grace-s 60"
    more = "--target m:f --agent a=cpu:1 --agent b=cpu:2"
    assert run_main(monkeypatch, *words.split(), *more.split()) == 0
    assert started.keeps_share == [True]
    assert started.zygotes == [(sys.executable, "m:f")]
    ((given, text),) = started.agents
    assert text == "the credentials"
    assert (given.port, given.address) == (7, "10.0.0.2")
    assert (given.leave_after_s, given.fence_after_s, given.grace_s) == (5.0, 90.0, 60.0)
    assert given.agent == ["a=cpu:1", "b=cpu:2"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("the credentials"))
    with pytest.raises(SystemExit, match=f"another agent uses {paths.data_dir()}"):
        run_main(monkeypatch, "--credentials")


def test_a_missing_sniffio_is_not_searched_for_in_each_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "sniffio", raising=False)
    module._note_absence_of_sniffio()
    assert ("sniffio" in sys.modules) is (importlib.util.find_spec("sniffio") is None)
    if "sniffio" in sys.modules:
        with pytest.raises(ModuleNotFoundError, match="sniffio"):
            importlib.import_module("sniffio")
