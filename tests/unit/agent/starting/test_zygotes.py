"""What an agent makes of the reports of a fork server; tests play the server at its socket."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from det_jupyter._version import __version__
from det_jupyter.agent.runs.run import new_run
from det_jupyter.agent.runs.specs import make_specs
from det_jupyter.agent.starting import zygotes as zygotes_module
from det_jupyter.agent.starting.rank_processes import (
    RankExit,
    RankProcesses,
    StartFailed,
    has_ended,
)
from det_jupyter.agent.starting.zygote_process import ZygoteProcess
from det_jupyter.agent.starting.zygotes import Zygote, Zygotes
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import (
    PROTOCOL,
    ForkGang,
    ForkRefused,
    GangForked,
    Loss,
    RankExited,
    RankSpec,
    ZygoteFailed,
    ZygoteReady,
    ZygoteReport,
)
from det_jupyter.errors import LaunchError
from tests.integration.agent_support import make_plan

ID = "1.1.1"
READY = ZygoteReady(protocol=PROTOCOL, version=__version__, warmup_s=2.5)


class Played:
    """A fork server that a test plays: its process sleeps, or ends at once with `code`."""

    def __init__(self, folder: Path, python: str = "/env/python", code: int | None = None) -> None:
        argv = ["sleep", "3600"] if code is None else ["sh", "-c", f"exit {code}"]
        self.process = subprocess.Popen(argv)
        if code is not None:
            os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
        ours, self.socket = socket.socketpair()
        self.log = folder / "zygote.out"
        self.started = ZygoteProcess(
            python=python, process=self.process, connection=ours, log=self.log
        )
        self.ranks: list[subprocess.Popen[bytes]] = []

    def say(self, report: ZygoteReport) -> None:
        """Send a report."""
        self.socket.sendall(report.model_dump_json().encode() + b"\n")

    async def hear(self) -> ForkGang:
        """Wait for a request."""
        reading = asyncio.get_running_loop().sock_recv
        self.socket.setblocking(False)
        received = b""
        while not received.endswith(b"\n"):
            received += await reading(self.socket, 1 << 16)
        return ForkGang.model_validate_json(received)

    def fork(self, num: int) -> list[int]:
        """Start so many ranks, which sleep; return their pids."""
        ranks = [subprocess.Popen(["sleep", "3600"], process_group=0) for _ in range(num)]
        self.ranks += ranks
        return [rank.pid for rank in ranks]

    def end(self) -> None:
        """End all of its processes."""
        self.socket.close()
        for process in (self.process, *self.ranks):
            process.kill()
            process.wait()


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Played]]:
    """Return what makes fork servers that the test plays."""
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    made: list[Played] = []

    def make(python: str = "/env/python", code: int | None = None) -> Played:
        made.append(Played(tmp_path, python, code))
        return made[-1]

    yield make
    for each in made:
        each.end()


Make = Callable[..., Played]


@asynccontextmanager
async def connected(played: Played) -> AsyncIterator[Zygote]:
    zygote = await Zygote.connect(played.started)
    try:
        yield zygote
    finally:
        await zygote.close()


def specs(tmp_path: Path, ranks: Sequence[int] = (0, 1)) -> list[RankSpec]:
    run = new_run(make_plan(ID, []), sockets=tmp_path / "sockets")
    made = make_specs(run, lifeline_fd=0, num_threads=1)
    return [made[rank] for rank in ranks]


def play(scenario: Awaitable[None]) -> None:
    async def act() -> None:
        await scenario
        await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})  # none is left

    asyncio.run(act())


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.002)


def test_a_server_that_is_ready_says_how_long_it_took_and_whether_it_can_fork(
    played: Make, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        server = played()
        async with connected(server) as zygote:
            assert (zygote.python, zygote.pid) == ("/env/python", server.process.pid)
            assert (zygote.is_alive, zygote.problem, zygote.is_idle) == (True, "", False)
            unsafe = READY.model_copy(update={"unsafe": "a thread runs"})
            server.say(unsafe)
            assert await zygote.ready() == unsafe
            assert zygote.is_idle

    with caplog.at_level(logging.INFO):
        play(scenario())
    assert [record.getMessage() for record in caplog.records] == [
        "zygote of /env/python is ready after 2.50 s",
        "ranks will not be forked: a thread runs",
    ]


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (ZygoteFailed(reason="there is no torch"), "there is no torch"),
        (
            ZygoteReady(protocol=PROTOCOL + 1, version="9.9", warmup_s=0.0),
            f"it has det_jupyter 9.9 (protocol {PROTOCOL + 1}), the agent is {__version__} "
            f"(protocol {PROTOCOL})",
        ),
    ],
)
def test_an_interpreter_that_cannot_run_ranks_is_a_final_error(
    played: Make, caplog: pytest.LogCaptureFixture, report: ZygoteReport, reason: str
) -> None:
    message = (
        f"the interpreter /env/python cannot run ranks: {reason}; install det_jupyter there: "
        f"/env/python -m pip install det-jupyter=={__version__}"
    )

    async def scenario() -> None:
        server = played()
        async with connected(server) as zygote:
            server.say(report)
            for _ in range(2):  # for each gang that waits
                with pytest.raises(LaunchError) as raised:
                    await zygote.ready()
                assert str(raised.value) == message

    play(scenario())
    assert message in caplog.text


@pytest.mark.parametrize(
    ("log", "code", "error", "loss", "reason"),
    [
        (None, 1, LaunchError, None, "ranks: its fork server died and printed nothing; install"),
        ("first\n  No module named x \n\n", 1, LaunchError, None, "ranks: No module named x; ins"),
        ("", None, StartFailed, Loss.FORK_SERVER, "was killed by signal 9 while it loaded torch"),
    ],
)
def test_a_server_that_dies_before_it_is_ready_says_why(
    played: Make,
    log: str | None,
    code: int | None,
    error: type[Exception],
    loss: Loss | None,
    reason: str,
) -> None:
    async def scenario() -> None:
        server = played(code=code)
        if log is not None:
            server.log.write_text(log)
        async with connected(server) as zygote:
            server.socket.close()
            with pytest.raises(error, match=reason) as raised:
                await zygote.ready()
            assert getattr(raised.value, "loss", None) == loss
            assert (zygote.is_alive, zygote.problem) == (False, "the zygote died")

    play(scenario())


def test_an_agent_that_ends_fails_no_gang_that_waits_for_the_server(
    played: Make, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        server = played()
        zygote = await Zygote.connect(server.started)
        given_up = asyncio.create_task(zygote.ready())
        waiting = asyncio.create_task(zygote.ready())
        await asyncio.sleep(0)
        given_up.cancel()
        await zygote.close()
        with pytest.raises(StartFailed, match="the agent ends") as raised:
            await waiting
        assert raised.value.loss == Loss.LEAVING
        assert server.process.returncode == -signal.SIGKILL

    play(scenario())
    assert caplog.records == []


def test_a_gang_is_forked_and_each_exit_is_told_to_who_waits_for_it(
    played: Make, tmp_path: Path
) -> None:
    async def scenario() -> None:
        server = played()
        async with connected(server) as zygote:
            server.say(READY)
            await zygote.ready()
            forking = asyncio.create_task(zygote.fork_gang(specs(tmp_path, ranks=(1, 0))))
            request = await server.hear()
            assert [spec.place.rank for spec in request.specs()] == [1, 0]
            assert request.until > asyncio.get_running_loop().time()
            assert not zygote.is_idle  # a request is open
            pids = server.fork(2)
            server.say(GangForked(allocation_id=ID, pids=pids))
            processes = await forking
            assert isinstance(processes, RankProcesses)
            assert (processes.pids, processes.note) == (
                {1: pids[0], 0: pids[1]},
                "forked from the zygote",
            )
            server.say(RankExited(pid=pids[1], exit_code=3))
            assert await processes.exits.get() == RankExit(0, 3)
            assert not zygote.is_idle
            server.say(RankExited(pid=pids[1], exit_code=3))
            server.say(RankExited(pid=pids[0], exit_code=-9))
            assert await processes.exits.get() == RankExit(1, -9)
            assert zygote.is_idle
            assert processes.exits.empty()

    play(scenario())


def test_a_server_that_refuses_says_why(played: Make, tmp_path: Path) -> None:
    refused = ForkRefused(allocation_id=ID, reason="no memory")

    async def scenario() -> None:
        server = played()
        async with connected(server) as zygote:
            forking = asyncio.create_task(zygote.fork_gang(specs(tmp_path)))
            await server.hear()
            server.say(refused)
            server.say(refused)  # of a request that was given up
            server.say(READY)
            assert await forking == refused
            await zygote.ready()
            assert zygote.is_idle

    play(scenario())


def test_a_server_that_does_not_answer_refuses_until_it_does_and_late_ranks_are_killed(
    played: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zygotes_module, "_PATIENCE_S", 0)

    async def scenario() -> None:
        server = played()
        async with connected(server) as zygote:
            for _ in range(2):
                refused = await zygote.fork_gang(specs(tmp_path))
                assert isinstance(refused, ForkRefused)
                assert refused.allocation_id == ID
                assert refused.reason == (
                    f"the zygote (process {server.process.pid}) has not answered for 0 s"
                )
            await server.hear()
            pids = server.fork(2)
            server.say(GangForked(allocation_id=ID, pids=pids))
            await until(lambda: all(map(has_ended, pids)))
            assert zygote.problem == ""

    play(scenario())


def test_a_server_has_the_seconds_to_answer_that_its_refusal_names(
    played: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def wait(tasks: set[asyncio.Future[object]], *, timeout: float) -> None:
        waits.append(timeout)

    async def scenario() -> None:
        server = played()
        async with connected(server) as zygote:
            begin = time.monotonic()
            with monkeypatch.context() as patched:
                patched.setattr(asyncio, "wait", wait)
                refused = await zygote.fork_gang(specs(tmp_path))
            end = time.monotonic()
            assert isinstance(refused, ForkRefused)
            assert refused.reason.endswith("has not answered for 5 s")
            assert sum(waits) == 5
            # This process may have been stopped during one of them, and the answer be there.
            assert len(waits) > 1
            request = await server.hear()
            assert begin + 5 <= request.until <= end + 5  # then the server forks nothing more

    play(scenario())


def test_the_ranks_of_a_server_that_died_are_killed_and_told_as_lost(
    played: Make, tmp_path: Path
) -> None:
    async def scenario() -> None:
        server = played()
        async with connected(server) as zygote:
            server.say(READY)
            forking = asyncio.create_task(zygote.fork_gang(specs(tmp_path)))
            await server.hear()
            pids = server.fork(2)
            server.say(GangForked(allocation_id=ID, pids=pids))
            processes = await forking
            assert isinstance(processes, RankProcesses)
            plan = make_plan("2.1.1", [])
            run = new_run(plan, sockets=tmp_path / "others")
            others = make_specs(run, lifeline_fd=0, num_threads=1)
            open_one = asyncio.create_task(zygote.fork_gang(others))
            await server.hear()
            server.socket.close()
            died = ForkRefused(allocation_id="2.1.1", reason="the zygote died")
            assert await open_one == died
            assert [await processes.exits.get() for _ in pids] == [
                RankExit(0, None), RankExit(1, None),
            ]  # fmt: skip
            assert all(map(has_ended, pids))
            assert await zygote.fork_gang(others) == died
            assert server.process.poll() is not None

    play(scenario())


def test_an_exit_that_a_stopped_server_does_not_tell_is_found(
    played: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(zygotes_module, "_CHECK_S", 0.002)

    async def scenario() -> None:
        server = played()
        async with connected(server) as zygote:
            forking = asyncio.create_task(zygote.fork_gang(specs(tmp_path)))
            await server.hear()
            pids = server.fork(2)
            server.say(GangForked(allocation_id=ID, pids=pids))
            processes = await forking
            assert isinstance(processes, RankProcesses)
            left = subprocess.Popen(["sleep", "3600"], process_group=pids[1])
            server.ranks.append(left)
            os.kill(pids[1], signal.SIGTERM)
            assert await processes.exits.get() == RankExit(1, -15)
            assert left.wait() == -signal.SIGKILL  # what it has started goes too
            server.say(RankExited(pid=pids[1], exit_code=-15))
            server.say(RankExited(pid=pids[0], exit_code=0))
            assert await processes.exits.get() == RankExit(0, 0)  # none is told twice
            warning = f"zygote={server.process.pid} does not reap its rank pid={pids[1]}"
            assert [record.getMessage() for record in caplog.records] == [warning]

    play(scenario())


class Starts:
    """Makes fork servers for `Zygotes`, one for each start."""

    def __init__(self, played: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        self.servers: list[Played] = []
        self._played = played
        monkeypatch.setattr(zygotes_module, "start_zygote", self._start)

    def _start(self, python: str, *, lifeline_fd: int, target: str) -> ZygoteProcess:
        assert (lifeline_fd, target) == (7, "module:function")
        self.servers.append(self._played(python))
        return self.servers[-1].started

    @property
    def pythons(self) -> list[str]:
        return [server.started.python for server in self.servers]


def test_an_interpreter_has_one_server_until_that_has_died(
    played: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = Starts(played, monkeypatch)

    async def scenario() -> None:
        zygotes = Zygotes(lifeline_fd=7, target="module:function")
        await zygotes.adopt(played("/first/python").started)
        first, again = await asyncio.gather(zygotes.get("/a/python"), zygotes.get("/a/python"))
        assert first is again
        assert (await zygotes.get("/first/python")).python == "/first/python"
        assert starts.pythons == ["/a/python"]
        starts.servers[0].socket.close()
        await until(lambda: not first.is_alive)
        connection = starts.servers[0].started.connection
        await until(lambda: connection.fileno() == -1)
        assert await zygotes.get("/a/python") is not first
        assert starts.pythons == ["/a/python", "/a/python"]
        await zygotes.close()
        assert [server.process.poll() for server in starts.servers] == [-9, -9]

    play(scenario())


def test_of_more_than_three_servers_the_idle_ones_are_closed_the_least_used_first(
    played: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = Starts(played, monkeypatch)

    async def scenario() -> None:
        zygotes = Zygotes(lifeline_fd=7, target="module:function")
        names = ["busy", "a", "b"]
        made = {name: await zygotes.get(name) for name in names}
        for server in starts.servers[1:]:
            server.say(READY)
        await made["a"].ready()
        await made["b"].ready()
        assert await zygotes.get("a") is made["a"]
        await zygotes.get("c")  # not ready yet, so it is not closed
        assert [made[name].is_alive for name in names] == [True, True, False]
        await zygotes.get("d")
        assert [made[name].is_alive for name in names] == [True, False, False]
        await zygotes.get("e")
        assert made["busy"].is_alive
        await zygotes.close()

    play(scenario())
