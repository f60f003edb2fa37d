"""TensorBoard files of runs elsewhere: what is sent of them, and when a run's end is reported."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from det_jupyter.agent.link import trial_files as trial_files_module
from det_jupyter.agent.link.outbox import ReportOutbox
from det_jupyter.agent.link.trial_files import TrialFiles
from det_jupyter.agent.runs.run import AgentRun, new_run
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import AgentCredentials, GangExited
from tests.integration.agent_support import make_plan

CREDENTIALS = AgentCredentials(agent="b", url="https://127.0.0.1:1", certificate="", token="t")


class Master:
    """Stores files as the master does, and notes the bytes of each request."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.parts: list[tuple[str, int, bytes]] = []
        self.status = 200
        self.num_refused = 0

    def open_http(self, _: object) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(self._answer), base_url="http://m")

    def _answer(self, request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/api/v1/agents/b/runs/1.1.1/files"
        name, offset = request.url.params["name"], int(request.url.params["offset"])
        if self.status != 200:
            self.num_refused += 1
            return httpx.Response(self.status)
        self.parts.append((name, offset, request.content))
        kept = self.files.get(name, b"")
        self.files[name] = kept[:offset] + request.content
        return httpx.Response(200, json={"path": name})


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Master:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    master = Master()
    monkeypatch.setattr(trial_files_module, "open_http", master.open_http)
    monkeypatch.setattr(trial_files_module, "PERIOD_S", 0.02)
    monkeypatch.setattr(trial_files_module, "_CHECK_S", 0.01)
    return master


@pytest.fixture
def run(master: Master) -> AgentRun:
    return new_run(make_plan("1.1.1", []), sockets=Path("/sockets"))


@pytest.fixture
def folder(run: AgentRun) -> Path:
    folder = paths.data_dir() / "tensorboard" / str(run.plan.experiment_id)
    folder = folder / str(run.plan.trial_id)
    folder.mkdir(parents=True)
    return folder


def play(run: AgentRun, *steps: Callable[[TrialFiles], object]) -> TrialFiles:
    """Take each step when what came before it was sent, or has been refused for two seconds."""
    files = TrialFiles(CREDENTIALS, {run.id: run})

    async def act() -> None:
        task = asyncio.create_task(files.keep_sent())
        for step in steps:
            step(files)
            await asyncio.sleep(0.15)
            for _ in range(40):  # on a busy computer
                if files.are_sent(run) or (run.is_alive and not list(files._changed(run))):
                    break
                await asyncio.sleep(0.05)
        task.cancel()

    asyncio.run(act())
    return files


def append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


def end(run: AgentRun) -> None:
    run.exited = GangExited(allocation_id=run.id, at=1.0, exit_codes={0: 0})


def test_of_event_files_the_new_bytes_are_sent_and_of_others_all(
    run: AgentRun, folder: Path, master: Master
) -> None:
    events, other = folder / "events.out.tfevents.1", folder / ".validated"

    def write(_: TrialFiles) -> None:
        append(events, b"ab")
        other.write_bytes(b"10")

    def change(_: TrialFiles) -> None:
        append(events, b"cd")
        other.write_bytes(b"2")

    play(run, write, change)
    assert sorted(master.parts) == [
        (".validated", 0, b"10"),
        (".validated", 0, b"2"),
        ("events.out.tfevents.1", 0, b"ab"),
        ("events.out.tfevents.1", 2, b"cd"),
    ]


def test_files_are_looked_at_once_in_a_while_and_at_once_when_the_run_has_ended(
    run: AgentRun, folder: Path, master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_files_module, "PERIOD_S", 3600.0)
    monkeypatch.setattr(trial_files_module, "_CHECK_S", 0.0)
    files = TrialFiles(CREDENTIALS, {run.id: run})
    events = folder / "events.out.tfevents.1"
    append(events, b"ab")

    async def act() -> None:
        task = asyncio.create_task(files.keep_sent())
        while not master.parts:
            await asyncio.sleep(0.001)
        append(events, b"cd")
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert len(master.parts) == 1
        end(run)
        while not files.are_sent(run):
            await asyncio.sleep(0.001)
        task.cancel()

    asyncio.run(act())
    assert [content for _, _, content in master.parts] == [b"ab", b"cd"]


def test_file_whose_name_is_not_utf8_holds_up_no_other(
    run: AgentRun, folder: Path, master: Master
) -> None:
    def write(_: TrialFiles) -> None:
        append(folder / os.fsdecode(b"a-\xff"), b"ab")
        append(folder / "b", b"cd")
        end(run)

    assert play(run, write).are_sent(run)
    assert master.files == {"b": b"cd"}


def test_end_of_a_run_is_reported_after_its_last_files_were_sent(
    run: AgentRun, folder: Path, master: Master
) -> None:
    files = TrialFiles(CREDENTIALS, {run.id: run})
    outbox = ReportOutbox({run.id: run}, files=files)
    append(folder / "events.out.tfevents.1", b"ab")
    end(run)

    async def act() -> None:
        assert outbox.next_batch(1.0).reports == []
        task = asyncio.create_task(files.keep_sent())
        while not outbox.next_batch(1.0).reports:
            await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(act())
    assert outbox.next_batch(1.0).reports == [run.exited]
    assert master.files == {"events.out.tfevents.1": b"ab"}


def test_run_without_files_waits_for_nothing(run: AgentRun, master: Master) -> None:
    end(run)
    assert TrialFiles(CREDENTIALS, {run.id: run}).are_sent(run)


@pytest.mark.parametrize(("status", "longest_s"), [(404, 30.0), (507, 0.0)])
def test_run_does_not_wait_for_files_that_the_master_does_not_take(
    run: AgentRun,
    folder: Path,
    master: Master,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    longest_s: float,
) -> None:
    monkeypatch.setattr(trial_files_module, "_LONGEST_S", longest_s)
    master.status = status
    append(folder / "events.out.tfevents.1", b"ab")
    assert play(run, lambda _: end(run)).are_sent(run)


def test_run_waits_for_files_that_the_master_may_take_soon(
    run: AgentRun, folder: Path, master: Master, caplog: pytest.LogCaptureFixture
) -> None:
    files = TrialFiles(CREDENTIALS, {run.id: run})
    master.status = 507  # its disk is full
    append(folder / "events.out.tfevents.1", b"ab")
    end(run)

    async def act() -> None:
        task = asyncio.create_task(files.keep_sent())
        while master.num_refused < 3:
            await asyncio.sleep(0.01)
        assert not files.are_sent(run)
        master.status = 200
        while not files.are_sent(run):
            await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(act())
    assert master.files == {"events.out.tfevents.1": b"ab"}
    (record,) = caplog.records  # each reason once
    assert record.getMessage().startswith("files of run 1.1.1 are not sent: ")


def test_file_that_the_master_lacks_is_sent_again_from_its_beginning(
    run: AgentRun, folder: Path, master: Master
) -> None:
    events = folder / "events.out.tfevents.1"

    def refuse(_: TrialFiles) -> None:
        master.status = 409
        append(events, b"cd")

    def accept(_: TrialFiles) -> None:
        master.status = 200

    play(run, lambda _: append(events, b"ab"), refuse, accept)
    assert master.parts[-1] == (events.name, 0, b"abcd")
    assert os.path.getsize(events) == 4


def test_an_event_file_that_was_begun_anew_is_sent_whole(
    run: AgentRun, folder: Path, master: Master
) -> None:
    events = folder / "events.out.tfevents.1"
    play(run, lambda _: append(events, b"abcd"), lambda _: events.write_bytes(b"ef"))
    assert master.parts == [(events.name, 0, b"abcd"), (events.name, 0, b"ef")]


def test_what_is_known_of_files_goes_with_their_run(
    run: AgentRun, folder: Path, master: Master
) -> None:
    append(folder / "events.out.tfevents.1", b"ab")
    end(run)
    runs = {run.id: run}
    files = TrialFiles(CREDENTIALS, runs)

    async def act() -> None:
        task = asyncio.create_task(files.keep_sent())
        while not files.are_sent(run):
            await asyncio.sleep(0.001)
        runs.clear()
        while files.are_sent(run) or files._sent:
            await asyncio.sleep(0.001)
        task.cancel()

    asyncio.run(act())
