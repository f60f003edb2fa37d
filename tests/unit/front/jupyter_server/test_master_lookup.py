"""What is said of the master, when one is started, and that a slow folder blocks nothing."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.processes import birth_of
from det_jupyter.contract.messages import PROTOCOL, MasterInfo
from det_jupyter.contract.messages.pages import MasterState
from det_jupyter.errors import DetError, MasterUnreachable, ProtocolMismatch
from det_jupyter.front.jupyter_server import master_lookup
from det_jupyter.front.jupyter_server.master_lookup import MasterLookup, MasterWatch
from tests.waiting import until


class Search:
    """Stands for `find_master`: counts its calls and waits until it may return."""

    def __init__(self, *errors: Exception) -> None:
        self.num = 0
        self.may_return = threading.Event()
        self._errors = list(errors)

    def __call__(self) -> MasterInfo | None:
        self.num += 1
        assert self.may_return.wait(600)
        if self._errors:
            raise self._errors.pop(0)
        return None


def installed(monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> Search:
    search = Search(*errors)
    monkeypatch.setattr(master_lookup, "find_master", search)
    return search


def test_those_who_ask_at_once_share_one_search_and_the_next_one_searches_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search = installed(monkeypatch)

    async def act() -> None:
        lookup = MasterLookup()
        asking = [asyncio.create_task(lookup.state()) for _ in range(3)]
        await asyncio.sleep(0.02)
        search.may_return.set()
        assert {state.state for state in await asyncio.gather(*asking)} == {"stopped"}
        assert search.num == 1
        await lookup.state()
        assert search.num == 2

    asyncio.run(act())


def test_an_error_reaches_all_who_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    search = installed(monkeypatch, DetError("its folder is gone"))
    search.may_return.set()

    async def act() -> None:
        lookup = MasterLookup()
        found = await asyncio.gather(lookup.find(), lookup.find(), return_exceptions=True)
        assert [str(each) for each in found] == ["its folder is gone"] * 2
        assert all(isinstance(each, MasterUnreachable) for each in found)

    asyncio.run(act())


def test_a_folder_that_does_not_answer_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    search = installed(monkeypatch)
    monkeypatch.setattr(master_lookup, "_FIND_TIMEOUT_S", 0.01)

    async def act() -> None:
        state = await MasterLookup().state()
        assert (state.state, "did not answer within" in state.problem) == ("stopped", True)
        search.may_return.set()
        await asyncio.sleep(0.02)

    asyncio.run(act())


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (ProtocolMismatch("of version 0.2", command="det master stop"), "mismatch"),
        (MasterUnreachable("it hangs", command="kill 7"), "silent"),
        (MasterUnreachable("the folder is gone"), "stopped"),
    ],
)
def test_what_is_wrong_becomes_a_state(
    monkeypatch: pytest.MonkeyPatch, error: DetError, state: str
) -> None:
    installed(monkeypatch, error).may_return.set()
    found = asyncio.run(MasterLookup().state())
    assert (found.state, found.problem) == (state, str(error))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    return tmp_path


def announce(**changes: object) -> None:
    fields = {
        "url": "http://127.0.0.1:9", "pid": os.getpid(), "birth": birth_of(os.getpid()),
        "started_at": 1.0, "version": "0.0.9", "protocol": PROTOCOL, "python": "p",
        "data_dir": "d",
    }  # fmt: skip
    info = MasterInfo.model_validate({**fields, **changes})
    paths.master_file().parent.mkdir(parents=True, exist_ok=True)
    paths.write_private(paths.master_file(), info.model_dump_json())


def announce_killed() -> None:
    announce(pid=2**22 - 7, birth="gone")


class Starts:
    """Stands for `ensure_master`: counts the starts, and fails when it may return."""

    def __init__(self) -> None:
        self.num = 0
        self.may_return = threading.Event()

    def __call__(self) -> MasterInfo:
        self.num += 1
        assert self.may_return.wait(600)
        raise MasterUnreachable("the master did not start (exit status 1)")


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch, home: Path) -> Starts:
    starts = Starts()
    monkeypatch.setattr(master_lookup, "ensure_master", starts)
    return starts


async def looked(lookup: MasterLookup) -> MasterState:
    """Return the state that those who watch see."""
    state, _ = await lookup.look(may_revive=True)
    return state


def test_a_master_that_is_not_there_is_not_started(starts: Starts) -> None:
    async def act() -> None:
        lookup = MasterLookup()
        assert await looked(lookup) == MasterState(state="stopped")
        assert starts.num == 0

    asyncio.run(act())


def test_one_that_may_be_started_is_tried_once_and_the_problem_is_said(starts: Starts) -> None:
    async def act() -> None:
        lookup = MasterLookup(may_start=True)
        assert (await lookup.state()).state == "stopped", "a handshake starts none"
        both = await asyncio.gather(looked(lookup), looked(lookup))
        assert [state.state for state in both] == ["starting", "starting"]
        assert (await looked(lookup)).state == "starting"
        starts.may_return.set()
        while (said := await looked(lookup)).state == "starting":
            await asyncio.sleep(0.01)
        assert said == MasterState(
            state="stopped", problem="the master did not start (exit status 1)"
        )
        assert await lookup.state() == said
        assert starts.num == 1

    asyncio.run(act())


def test_a_running_master_is_said_with_its_version(home: Path) -> None:
    announce()

    async def act() -> None:
        state, info = await MasterLookup().look()
        assert state == MasterState(state="running", version="0.0.9")
        assert info is not None
        assert info.url == "http://127.0.0.1:9"

    asyncio.run(act())


def test_another_version_is_said_with_the_command_that_replaces_it(starts: Starts) -> None:
    announce(protocol=PROTOCOL + 1)
    said = asyncio.run(looked(MasterLookup(may_start=True)))
    assert said.state == "mismatch"
    assert said.command.endswith("-m det_jupyter.master restart")
    assert said.command in said.problem
    assert starts.num == 0


def test_one_that_was_killed_is_started_again_and_one_that_was_stopped_is_not(
    starts: Starts,
) -> None:
    starts.may_return.set()

    async def act() -> None:
        announce_killed()
        lookup, other = MasterLookup(), MasterLookup()
        assert (await looked(lookup)).state == "stopped", "it never ran, as far as is known"
        announce()
        assert (await looked(lookup)).state == "running"
        assert (await looked(other)).state == "running"
        announce_killed()
        assert (await lookup.state()).state == "stopped"
        assert starts.num == 0, "only those who watch start it"
        assert (await looked(lookup)).state == "starting"
        while (await looked(lookup)).state == "starting":
            await asyncio.sleep(0.01)
        assert starts.num == 1, "one that does not start is not tried again"
        announce()
        assert (await looked(lookup)).problem == ""
        announce_killed()
        assert (await looked(lookup)).state == "starting", "it has run meanwhile"
        paths.master_file().unlink()
        assert await looked(other) == MasterState(state="stopped")
        assert starts.num == 2

    asyncio.run(act())


def test_a_folder_that_cannot_be_read_is_said(starts: Starts) -> None:
    paths.master_file().parent.mkdir(parents=True, exist_ok=True)
    paths.master_file().mkdir()
    said = asyncio.run(looked(MasterLookup(may_start=True)))
    assert said.state == "stopped"
    assert "master.json" in said.problem
    assert starts.num == 0


def test_tabs_are_told_when_the_state_changes_and_nobody_looks_without_tabs(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setattr(master_lookup, "_WATCH_S", 0.01)
    one: list[str] = []
    other: list[str] = []

    def tell_one(state: MasterState) -> None:
        one.append(state.state)

    def tell_other(state: MasterState) -> None:
        other.append(state.state)

    async def act() -> None:
        watch = MasterWatch(MasterLookup())
        await watch.add(tell_one)
        await watch.add(tell_other)
        assert (watch.state.state, watch.info) == ("stopped", None)
        assert one == ["stopped"]
        waiting = asyncio.create_task(watch.running())
        announce()
        assert (await waiting).version == "0.0.9"
        await until(lambda: other == ["running"], "it is told")
        watch.remove(tell_other)
        paths.master_file().unlink()
        await until(lambda: one == ["stopped", "running", "stopped"], "it is told")
        assert watch.info is None
        watch.remove(tell_one)
        announce()
        await until(lambda: len(asyncio.all_tasks()) == 1, "nobody looks any more")
        assert watch.info is None
        await watch.add(tell_one)
        assert (watch.state.state, one[-1]) == ("running", "running")
        watch.remove(tell_one)
        assert other == ["running"]

    asyncio.run(act())


def test_an_error_of_one_look_does_not_end_the_watch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(master_lookup, "_WATCH_S", 0.01)

    async def act() -> None:
        watch = MasterWatch(MasterLookup())
        search = installed(monkeypatch)
        search.may_return.set()
        await watch.add(lambda state: None)
        search._errors.append(ValueError("a bug"))
        await until(lambda: "a bug" in caplog.text, "it is logged")
        looks = search.num
        await until(lambda: search.num > looks + 1, "it looks again")

    asyncio.run(act())


def test_a_folder_that_hangs_has_one_thread_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(master_lookup, "_WATCH_S", 0.01)
    monkeypatch.setattr(master_lookup, "_FIND_TIMEOUT_S", 0.01)

    async def act() -> None:
        search = installed(monkeypatch)
        watch = MasterWatch(MasterLookup())
        looks = 0
        look = watch.look

        async def count() -> None:
            nonlocal looks
            looks += 1
            await look()

        monkeypatch.setattr(watch, "look", count)
        await watch.add(lambda state: None)
        await until(lambda: looks > 5, "it looks several times")
        assert "did not answer within" in watch.state.problem
        assert search.num == 1
        search.may_return.set()
        await until(lambda: watch.state.problem == "", "the folder answers")

    asyncio.run(act())
