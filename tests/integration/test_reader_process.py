"""When the master starts the reader, and how it ends: with stand-ins for the reader."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from websocket import WebSocketBadStatusException, create_connection

from det_jupyter.client import Client
from det_jupyter.connection import Session, find_master
from det_jupyter.contract.documents.codec import unpack
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import MasterInfo
from det_jupyter.contract.messages.pages import PAGE_PROTOCOL
from det_jupyter.errors import MasterUnreachable
from det_jupyter.master.background import reader_process
from det_jupyter.master.background.reader_process import ReaderProcess
from tests.fork_source import REPOSITORY
from tests.integration import reader_stand_in
from tests.integration.master_support import (
    MasterProcess,
    make_client,
    master_process,
)
from tests.integration.reader_stand_in import ask, target_of
from tests.processes import find, is_gone, wait_until, wait_until_gone
from tests.reader_starters import NoReaders, StarterProcess, starter_of
from tests.waiting import until


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    monkeypatch.setattr(reader_process, "_PAUSES_S", (0.01, 0.02))
    return tmp_path


class Played:
    """A supervised reader, and the port at which it is reached."""

    def __init__(self, listener: socket.socket, starter: StarterProcess) -> None:
        host, port = listener.getsockname()
        self.url = f"http://{host}:{port}"
        self.starter = starter
        self.problem = ""
        self.reader = ReaderProcess(listener, "the token", starter, self._note_problem)

    def _note_problem(self, problem: str) -> None:
        self.problem = problem

    async def ask(self) -> dict[str, Any]:
        """Return what a reader says."""
        return await asyncio.to_thread(ask, self.url)

    def connect(self) -> socket.socket:
        """Connect, and wait for nothing."""
        host, _, port = self.url.removeprefix("http://").partition(":")
        return socket.create_connection((host, int(port)))


def num_starts() -> int:
    with suppress(FileNotFoundError):
        return paths.reader_log().read_text().count("was started")
    return 0


def play(scene: Callable[[Played], Awaitable[None]], target: str = target_of("usual")) -> None:
    """Supervise a reader while a scene is played; no process is left after."""

    async def run(listener: socket.socket, starter: StarterProcess) -> None:
        played = Played(listener, starter)
        running = asyncio.create_task(played.reader.run())
        try:
            await scene(played)
        finally:
            running.cancel()
            await asyncio.wait({running})

    with starter_of(target) as starter, socket.socket(proto=socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        asyncio.run(run(listener, starter))


@pytest.fixture(autouse=True)
def readers_count_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_process, "_UNUSED_S", 0.0)


def test_a_reader_that_has_run_for_a_moment_counts_as_unused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reader_process, "_UNUSED_S", 600.0)

    async def scene(played: Played) -> None:
        await played.ask()
        assert played.reader.idle_s == float("inf")  # others may have connected, without the token
        await played.reader.kill()
        assert played.reader.idle_s == float("inf")

    play(scene)


def test_nothing_runs_until_someone_connects() -> None:
    async def scene(played: Played) -> None:
        played.reader.tell_commit()
        await played.reader.kill()
        await asyncio.sleep(0.1)
        assert played.reader.idle_s == float("inf")
        assert not paths.reader_log().exists()

    play(scene)


def test_who_connects_first_waits_for_the_start_and_others_meet_the_same_reader(
    home: Path,
) -> None:
    async def scene(played: Played) -> None:
        found = await asyncio.gather(*[played.ask() for _ in range(5)])
        assert await played.ask() == found[0]
        assert found == [found[0]] * 5
        pid = found[0]["pid"]
        assert found[0] == {
            "pid": pid, "session": pid, "folder": str(home / "data"), "token": "the token",
            "nodelay": True, "commits": 0,
        }  # fmt: skip
        assert "the token" not in " ".join(psutil.Process(pid).cmdline())
        assert played.reader.idle_s == 0

    play(scene)
    assert num_starts() == 1
    assert stat.S_IMODE(paths.reader_log().stat().st_mode) == 0o600


def test_each_commit_is_told() -> None:
    async def scene(played: Played) -> None:
        await played.ask()
        for _ in range(3):
            played.reader.tell_commit()
        while (await played.ask())["commits"] < 3:
            pass
        assert (await played.ask())["commits"] == 3

    play(scene)


def test_commits_wait_for_no_reader_that_is_frozen_and_it_is_killed_on_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def scene(played: Played) -> None:
        frozen = (await played.ask())["pid"]
        await until(lambda: "started the reader" in caplog.text, "the master knows its pid")
        os.kill(frozen, signal.SIGSTOP)
        for _ in range(100_000):  # more than a pipe holds
            played.reader.tell_commit()
        await played.reader.kill()  # which waits no longer than a second
        await until(lambda: is_gone(frozen), "it has ended")
        assert (await played.ask())["pid"] != frozen

    play(scene)
    assert "the reader did not answer: it was killed on request" in caplog.text


def test_a_reader_is_killed_on_request_though_its_pid_is_not_known_yet(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(played: Played) -> None:
        with played.connect():
            while played.reader._running is None:
                await asyncio.sleep(0)
            await played.reader.kill()
            await until(lambda: "killed on request" in caplog.text, "it has ended")

    play(scene)


def test_after_a_reader_was_killed_the_next_connection_starts_another(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_process, "_PAUSES_S", (0.0, 0.0))  # it ends soon, three times
    caplog.set_level(logging.INFO)

    async def scene(played: Played) -> None:
        pids = []
        for _ in range(3):
            pids.append((await played.ask())["pid"])
            os.kill(pids[-1], signal.SIGKILL)
            await until(lambda: played.reader.idle_s > 0, "it has ended")
            played.reader.tell_commit()
        await asyncio.sleep(0.05)
        assert num_starts() == len({*pids}) == 3  # and nobody has asked since

    play(scene)
    assert caplog.text.count("started the reader, pid=") == 3
    assert caplog.text.count("WARNING") == caplog.text.count("was killed by SIGKILL") == 3


def test_a_connection_that_is_closed_before_anyone_accepts_starts_one_reader() -> None:
    async def scene(played: Played) -> None:
        with closing(played.connect()):
            pass
        await until(num_starts, "it is started all the same")
        pid = (await played.ask())["pid"]
        await asyncio.sleep(0.1)
        assert (await played.ask())["pid"] == pid
        assert num_starts() == 1

    play(scene)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("broken", "the reader has ended with exit status 1; see "),
        ("leaving", "the reader has ended"),
    ],
)
def test_a_reader_that_ends_before_it_accepts_is_not_started_for_ever(
    kind: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def scene(played: Played) -> None:
        with pytest.raises(ConnectionError):
            await played.ask()
        assert num_starts() == 2  # a connection survives one failure
        with closing(played.connect()):
            pass
        await until(lambda: num_starts() == 3, "it is started for who has gone")
        await asyncio.sleep(0.3)
        assert num_starts() == 3  # once

    play(scene, target_of(kind))
    assert told in caplog.text


def test_a_program_that_cannot_be_imported_says_so_in_its_log() -> None:
    async def scene(played: Played) -> None:
        with pytest.raises(ConnectionError):
            await played.ask()

    play(scene, "nothing.here:run")
    assert "ModuleNotFoundError: No module named 'nothing'" in paths.reader_log().read_text()


def test_after_its_starter_was_killed_another_one_starts_readers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene(played: Played) -> None:
        monkeypatch.setenv("PYTHONPATH", REPOSITORY)  # of a starter that replaces the first
        pid = (await played.ask())["pid"]
        played.starter.process.kill()
        await until(lambda: is_gone(pid), "its reader ends with it")
        assert (await played.ask())["pid"] != pid
        assert played.problem == ""

    play(scene)


@pytest.mark.parametrize("has_reader", [False, True])
def test_a_starter_that_does_not_answer_is_replaced(
    has_reader: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(played: Played) -> None:
        monkeypatch.setenv("PYTHONPATH", REPOSITORY)  # of a starter that replaces the first
        if has_reader:
            reader = (await played.ask())["pid"]
        for name in ("_ANSWER_S", "_LOOK_S", "_SOON_S"):
            monkeypatch.setattr(reader_process, name, 0.1)
        played.reader._answer_s = 0.1
        played.starter.process.suspend()
        if has_reader:
            os.kill(reader, signal.SIGKILL)
            assert (await played.ask())["pid"] != reader
        else:
            assert await played.ask()
        assert not played.starter.process.is_running()

    play(scene)


def test_that_readers_fail_is_a_problem_until_another_is_started() -> None:
    async def scene(played: Played) -> None:
        with pytest.raises(ConnectionError):
            await played.ask()
        assert played.problem.startswith(
            "pages and views show nothing new: the reader has ended with exit status 1; see /"
        )
        played.starter.start = other.start  # type: ignore[method-assign]
        await played.ask()
        assert played.problem == ""

    with starter_of(target_of("usual")) as other:
        play(scene, target_of("broken"))


def test_pauses_between_failures_grow_up_to_a_bound_and_begin_anew_after_a_long_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reader_process, "_PAUSES_S", (0.2, 1.0))
    ran_s = iter([1.0, 1.0, 1.0, 1.0, 30.0, 1.0])
    pauses: list[float] = []
    now = 0.0

    async def scene() -> None:
        async def run(reader: ReaderProcess) -> int:
            nonlocal now
            now += next(ran_s)
            return 1

        async def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 5:
                raise asyncio.CancelledError

        async def connection(reader: ReaderProcess) -> None:
            pass

        monkeypatch.setattr(ReaderProcess, "_run_program", run)
        monkeypatch.setattr(ReaderProcess, "_connection", connection)
        monkeypatch.setattr(reader_process, "asyncio", SimpleNamespace(sleep=pause))
        clock = SimpleNamespace(monotonic=lambda: now)
        monkeypatch.setattr(reader_process, "time", clock)
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            pytest.raises(asyncio.CancelledError),
        ):
            await ReaderProcess(listener, "t", NoReaders()).run()

    asyncio.run(scene())
    assert pauses == [0.2, 0.4, 0.8, 1.0, 0.2]


def test_a_reader_that_does_not_end_with_its_input_is_killed() -> None:
    pids: list[int] = []

    async def scene(played: Played) -> None:
        pids.append((await played.ask())["pid"])

    play(scene, target_of("stubborn"))
    assert is_gone(pids[0])


# with a whole master


@pytest.fixture
def master(home: Path) -> Iterator[MasterProcess]:
    with master_process(home) as master:
        yield master


def start(master: MasterProcess) -> MasterInfo:
    return master.start(f"{reader_stand_in.__name__}:serve_with_stand_in")


def test_a_master_has_one_reader_while_someone_looks_and_ends_it(master: MasterProcess) -> None:
    info = start(master)
    assert info.reader_url.startswith("http://127.0.0.1:")
    assert info.reader_url != info.url
    with make_client(info) as http:
        assert http.get("/status").status_code == 200
        assert find(master.home, "det_jupyter.reader") is None
        first = ask(info.reader_url)
        assert first["token"] == info.token
        before = first["commits"]
        master.agent(info)
        wait_until(lambda: ask(info.reader_url)["commits"] > before, "the commit is told")

        os.kill(first["pid"], signal.SIGKILL)
        wait_until_gone(first["pid"])
        second = ask(info.reader_url)
        assert second["pid"] != first["pid"]

        os.kill(second["pid"], signal.SIGSTOP)
        assert http.post("/reader/end").json() == {}
        assert is_gone(second["pid"])
        third = ask(info.reader_url)
        assert third["pid"] != second["pid"]
    assert master.end() == 0
    assert is_gone(third["pid"])


def test_the_readers_own_program_greets_who_has_the_masters_token(master: MasterProcess) -> None:
    info = master.start()
    header = [f"Authorization: Bearer {info.token}", "X-Det-May-Write: 0"]
    url = f"{info.reader_url.replace('http', 'ws', 1)}/socket"
    with closing(create_connection(url, header=header, suppress_origin=True)) as page:
        hello = unpack(page.recv())
        assert (hello["op"], hello["protocol"]) == ("hello", PAGE_PROTOCOL)
        assert find(master.home, "det_jupyter.reader") is not None
    with pytest.raises(WebSocketBadStatusException):
        create_connection(url, header=["Authorization: Bearer wrong"], suppress_origin=True)
    assert master.end() == 0


def test_a_reader_ends_with_a_master_that_is_killed(master: MasterProcess) -> None:
    pid = ask(start(master).reader_url)["pid"]
    master.kill()
    wait_until_gone(pid)


def test_after_a_master_was_killed_another_starts_though_readers_and_starter_were_frozen(
    master: MasterProcess,
) -> None:
    reader = psutil.Process(ask(start(master).reader_url)["pid"])
    starter = reader.parent()
    assert starter is not None
    for frozen in (reader, starter):
        frozen.suspend()
    master.kill()
    assert ask(start(master).reader_url)["pid"] != reader.pid
    wait_until_gone(reader.pid)
    wait_until_gone(starter.pid)


def test_reader_and_starter_keep_none_of_the_masters_files_open(master: MasterProcess) -> None:
    reader = psutil.Process(ask(start(master).reader_url)["pid"])
    starter = reader.parent()
    assert starter is not None
    assert [file.path for file in reader.open_files()] == [str(paths.reader_log())] * 2
    wait_until(lambda: not starter.net_connections(), "it has closed what the reader has")
    assert not [file.path for file in starter.open_files() if str(master.home) in file.path]
    assert [port.status for port in reader.net_connections()] == [psutil.CONN_LISTEN]


def test_where_no_reader_lasts_a_document_is_not_waited_for(master: MasterProcess) -> None:
    info = master.start(f"{reader_stand_in.__name__}:serve_with_broken_readers")
    with closing(Session(info)) as session:
        began = time.monotonic()
        with pytest.raises(MasterUnreachable, match="nothing new: the reader has ended with exit"):
            Client(session).document("cluster").fetch()
        assert time.monotonic() - began < 10.0
        problems = session.get("/status")["problems"]
    assert [each for each in problems if "the reader has ended with exit status 1" in each]


def test_files_of_a_master_do_not_take_the_place_of_closed_standard_streams(home: Path) -> None:
    line = f"exec {sys.executable} -m det_jupyter.master serve --no-agent <&- >&- 2>&-"
    with subprocess.Popen(["bash", "-c", line]) as master:
        try:
            wait_until(find_master, "the master runs")
            starter = wait_until(lambda: find(home, "det_jupyter.starter"), "its starter runs")
            links = [
                f"/proc/{each}/fd/{number}"
                for each in (master.pid, starter.pid)
                for number in range(3)
            ]
            assert {*map(os.readlink, links)} == {"/dev/null"}
        finally:
            master.terminate()


def test_reader_and_starter_are_not_taken_for_their_master(master: MasterProcess) -> None:
    reader = psutil.Process(ask(start(master).reader_url)["pid"])
    starter = reader.parent()
    assert starter is not None
    seen = [[*filter(None, each.cmdline()[1:])] for each in (starter, reader)]
    assert seen == [["det_jupyter.starter"], ["det_jupyter.reader"]]
    assert [each.name() for each in (starter, reader)] == ["det-starter", "det-reader"]


def test_a_frozen_reader_does_not_keep_its_master_from_ending(master: MasterProcess) -> None:
    pid = ask(start(master).reader_url)["pid"]
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    assert master.end() == 0
    assert is_gone(pid)
    assert time.monotonic() - began > 1.0  # it had its time to end by itself
