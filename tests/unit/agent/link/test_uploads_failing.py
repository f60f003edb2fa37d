"""Uploads that wait, fail or are refused, and those of several agents together."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from det_jupyter.agent.link import destinations
from det_jupyter.agent.link import uploads as uploads_module
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import GangExited, RoomWait
from det_jupyter.contract.messages.disks import MASTERS
from det_jupyter.contract.run.journal import (
    CheckpointSaved,
    CheckpointShare,
    RunEnded,
    TraceSaved,
    parse_line,
    to_line,
)
from det_jupyter.master.service.reports.checkpoint_inbox import write_part
from tests.unit.agent.link.test_uploads import (
    STEP,
    Master,
    OfRun,
    chunk,
    master,
    own_folder,
    save,
    saved,
    trace,
    upload,
)

__all__ = ["master", "own_folder"]  # fixtures


def test_checkpoint_that_the_master_cannot_store_ends_its_run_and_nothing_later_is_sent(
    own_folder: Path, master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(uploads_module, "GIVE_UP_S", 0.0)
    monkeypatch.setattr("det_jupyter.master.service.reports.checkpoint_inbox.write_part", full)
    uploads, ended = OfRun(), to_line(RunEnded(at=3.0, reason="completed", steps_completed=1))
    uploads.run.exited = GangExited(allocation_id="1.1.1", at=4.0, exit_codes={0: 0})
    assert upload(uploads, STEP, save(own_folder, "u1", a="a"), ended) == [parse_line(STEP)]
    ((error, no_room),) = uploads.broken_off
    assert no_room
    what = "checkpoint u1 could not be uploaded from agent b: on the master's computer, "
    assert error.startswith(what)
    assert f"No space left on device: '{master.folder}'" in error
    assert list(master.folder.iterdir()) == []
    later = chunk(ended)
    assert uploads.of(later) == later.model_copy(update={"text": ""})


def test_upload_waits_for_room_on_the_masters_disk_while_the_run_lives(
    own_folder: Path, master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[RoomWait | None] = []
    uploads = OfRun()

    def full_twice(*given: Any) -> None:
        waited.append(uploads.run.upload_wait)
        if len(waited) < 3:
            raise OSError(28, "No space left on device")
        write_part(*given)

    monkeypatch.setattr(uploads_module, "GIVE_UP_S", 0.0)
    monkeypatch.setattr(uploads_module, "_PAUSES_S", (0.01, 0.01))
    monkeypatch.setattr(
        "det_jupyter.master.service.reports.checkpoint_inbox.write_part", full_twice
    )
    line = save(own_folder, "u1", a="a")
    (record,) = upload(uploads, line)
    assert isinstance(record, CheckpointSaved)
    assert uploads.broken_off == []
    assert [wait and wait.folder for wait in waited[:3]] == [None, MASTERS, MASTERS]
    assert uploads.run.upload_wait is None


def test_upload_that_the_network_always_cuts_ends_the_run(
    own_folder: Path, master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads_module, "GIVE_UP_S", 0.0)
    master.cuts_uploads = True
    uploads = OfRun()
    assert upload(uploads, save(own_folder, "u1", a="a")) == []
    ((error, no_room),) = uploads.broken_off
    assert "could not be uploaded from agent b: WriteError: the network is down" in error
    assert not no_room


@pytest.mark.parametrize(
    ("seconds", "num_attempts"),
    [(20.0, 4), (30.0, 3), (45.0, 3)],  # for a minute, and three times at least
)
def test_upload_is_tried_for_a_minute_from_its_first_failure_on(
    own_folder: Path,
    master: Master,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    num_attempts: int,
) -> None:
    attempts: list[float] = []
    now = [1000.0]

    def note(method: str) -> None:
        if method == "PUT":
            now[0] += seconds
            attempts.append(now[0])
            master.cuts_uploads = len(attempts) < 20

    monkeypatch.setattr(
        uploads_module, "time", SimpleNamespace(monotonic=lambda: now[0], time=time.time)
    )
    master.cuts_uploads, master.on_request = True, note
    uploads = OfRun()
    assert upload(uploads, save(own_folder, "u1", a="a")) == []
    assert len(uploads.broken_off) == 1
    assert len(attempts) == num_attempts


def test_upload_goes_on_when_the_master_can_be_reached_again(
    own_folder: Path, master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads_module, "GIVE_UP_S", 0.0)
    master.is_reachable = False
    uploads = OfRun()
    whole = chunk(save(own_folder, "u1", a="a"))

    async def run() -> None:
        for _ in range(20):
            assert uploads.of(whole) is None
            await asyncio.sleep(0.01)
        master.is_reachable = True
        while uploads.of(whole) is None:
            await asyncio.sleep(0.01)

    asyncio.run(run())
    assert uploads.broken_off == []
    assert (master.folder / "u1" / "a").read_text() == "a"


def share(folder: Path, number: int, of: int, **files: str) -> str:
    for name, text in files.items():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return to_line(
        CheckpointShare(at=2.0, uuid="u1", share=number, num_shares=of, path=str(folder))
    )


def test_checkpoint_of_two_agents_is_sent_when_the_files_of_both_have_arrived(
    own_folder: Path, master: Master, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads_module, "_SHARES_POLL_S", 0.01)

    async def run() -> list[str]:
        chief, other = OfRun(None), OfRun()
        mine, theirs = tmp_path / "mine", tmp_path / "theirs"
        whole = chunk(share(mine, 0, 2, a="a", metadata="m"), saved("u1", own_folder), STEP)
        for _ in range(20):
            assert chief.of(whole) is None
            await asyncio.sleep(0.01)
        rest = chunk(share(theirs, 1, 2, b="b"), STEP)
        while (sent := chief.of(whole)) is None:
            other.of(rest)
            await asyncio.sleep(0.01)
        while (second := other.of(rest)) is None or second.text != STEP:
            await asyncio.sleep(0.01)
        while mine.exists() or theirs.exists():
            await asyncio.sleep(0.01)
        return sent.text.splitlines()

    first, second = map(parse_line, asyncio.run(run()))
    assert isinstance(first, CheckpointSaved)
    assert first.path == str(master.folder / "u1")
    assert second == parse_line(STEP)
    found = {path.name: path.read_text() for path in (master.folder / "u1").iterdir()}
    assert found == {"a": "a", "b": "b", "metadata": "m"}


@pytest.mark.parametrize("is_alive", [True, False])
def test_run_whose_other_agents_upload_nothing_ends(
    own_folder: Path,
    master: Master,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_alive: bool,
) -> None:
    # Ranks elsewhere may still write their files while the run lives.
    monkeypatch.setattr(uploads_module, "_SHARES_S", 0.0 if is_alive else 3600.0)
    monkeypatch.setattr(uploads_module, "_SHARES_AFTER_END_S", 3600.0 if is_alive else 0.0)
    monkeypatch.setattr(uploads_module, "_SHARES_POLL_S", 0.01)
    uploads = OfRun()
    if not is_alive:
        uploads.run.exited = GangExited(allocation_id="1.1.1", at=4.0, exit_codes={0: 0})
    lines = share(tmp_path / "mine", 0, 2, a="a"), saved("u1", own_folder)
    assert upload(uploads, *lines) == []
    ((error, no_room),) = uploads.broken_off
    assert "files of it on other computers were not uploaded" in error
    assert not no_room


def test_share_that_cannot_be_uploaded_ends_the_run_and_is_removed(
    own_folder: Path, master: Master, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads_module, "GIVE_UP_S", 0.0)
    master.cuts_uploads = True
    uploads = OfRun()
    assert upload(uploads, share(tmp_path / "mine", 1, 2, a="a"), STEP) == []
    ((error, _),) = uploads.broken_off
    assert "could not be uploaded from agent b: WriteError" in error
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize("kind", ["checkpoint", "trace"])
def test_what_the_master_refuses_for_another_reason_than_room_is_given_up(
    own_folder: Path, master: Master, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    answers = iter([507, *[500] * 10])
    waits: list[bool] = []
    uploads = OfRun()

    def refuse(_: httpx.Request) -> httpx.Response:
        waits.append(uploads.run.upload_wait is not None)
        return httpx.Response(next(answers), content=b"it is ill")

    monkeypatch.setattr(master, "_answer", refuse)
    monkeypatch.setattr(uploads_module, "GIVE_UP_S", 0.0)
    path = paths.data_dir() / "traces" / "1" / "1" / "profile-1.json.gz"
    path.parent.mkdir(parents=True)
    path.write_text("abc")
    line = trace(path) if kind == "trace" else save(own_folder, "u1", a="a")
    sent = upload(uploads, line)
    assert uploads.run.upload_wait is None
    reason = "could not be uploaded from agent b: the master answered 500: it is ill"
    if kind == "trace":  # which is no reason to end the run
        (record,) = sent
        assert isinstance(record, TraceSaved)
        assert (record.error, uploads.broken_off, any(waits)) == (f"it {reason}", [], False)
    else:
        assert (sent, uploads.broken_off) == ([], [(f"checkpoint u1 {reason}", False)])
        assert waits == [False, True, False, False]  # room is waited for, and nothing else


def test_trace_of_a_run_that_the_master_has_given_up_keeps_its_path(
    own_folder: Path, master: Master
) -> None:
    path = paths.data_dir() / "traces" / "1" / "1" / "profile-1.json.gz"
    path.parent.mkdir(parents=True)
    path.write_text("abc")
    master.runs.clear()
    assert upload(OfRun(), trace(path)) == [parse_line(trace(path))]
    assert upload(OfRun(None), trace(path)) == [parse_line(trace(path))]  # of this computer


def test_a_master_without_a_free_descriptor_here_is_not_away(
    own_folder: Path, master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = 0

    def open_http(credentials: object) -> httpx.AsyncClient:
        nonlocal opened
        opened += 1
        if opened % 2 == 0:  # the small request that finds out
            raise OSError(24, "Too many open files")
        return master.open_http(credentials)

    monkeypatch.setattr(destinations, "open_http", open_http)
    monkeypatch.setattr(uploads_module, "GIVE_UP_S", 0.0)
    master.cuts_uploads = True
    uploads = OfRun()
    assert upload(uploads, save(own_folder, "u1", a="a")) == []
    assert len(uploads.broken_off) == 1


def test_share_of_a_checkpoint_that_the_chief_has_not_recorded_ends_no_run(
    own_folder: Path, master: Master, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads_module, "_SHARES_S", 0.0)
    monkeypatch.setattr(uploads_module, "_SHARES_POLL_S", 0.01)
    uploads = OfRun()
    assert upload(uploads, share(tmp_path / "mine", 1, 2, a="a"), STEP) == [parse_line(STEP)]
    assert uploads.broken_off == []


@pytest.mark.parametrize("fails", [True, False])
def test_the_end_of_each_upload_is_news_whatever_it_is(
    own_folder: Path,
    master: Master,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fails: bool,
) -> None:
    monkeypatch.setattr(uploads_module, "GIVE_UP_S", 0.0)
    master.cuts_uploads = fails
    path = paths.data_dir() / "traces" / "1" / "1" / "profile-1.json.gz"
    path.parent.mkdir(parents=True)
    path.write_text("abc")
    for what, line in (
        ("checkpoint u2", save(own_folder, "u2", a="a")),
        ("checkpoint u1", share(tmp_path / "mine", 0, 1, a="a", metadata="m")),
        (str(path), trace(path)),
    ):
        caplog.clear()
        uploads = OfRun()
        upload(uploads, line, STEP)
        assert uploads.num_done == 1
        assert len(uploads.broken_off) == (fails and what != str(path))
        again = [f"{what} is uploaded again: WriteError: the network is down"] * 2
        end = f"{what} is not uploaded" + (", so its run ends" if what != str(path) else "")
        told = [record.getMessage() for record in caplog.records]
        expected = [*again, f"{end}: WriteError: the network is down"]
        assert told == (expected if fails else [])


def test_what_is_known_of_a_run_that_failed_goes_with_it(
    own_folder: Path, master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads_module, "GIVE_UP_S", 0.0)
    master.cuts_uploads = True
    uploads = OfRun()
    assert upload(uploads, save(own_folder, "u1", a="a")) == []
    assert uploads._failed == {"1.1.1": "u1"}
    uploads.remove_copies({"1.1.1"})
    assert uploads._failed == {"1.1.1": "u1"}
    uploads.remove_copies(set())
    assert (uploads._failed, uploads._tasks, uploads._keys) == ({}, {}, {})
