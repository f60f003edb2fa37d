"""Which part of a journal may be sent while checkpoints are on their way."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from det_jupyter.agent.link import destinations
from det_jupyter.agent.link import uploads as uploads_module
from det_jupyter.agent.link.uploads import Uploads
from det_jupyter.agent.runs.run import AgentRun, new_run
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import AgentCredentials, Chunk, StoredFiles
from det_jupyter.contract.run.journal import (
    CheckpointSaved,
    FirstStep,
    Notice,
    Record,
    TraceSaved,
    parse_line,
    to_line,
)
from det_jupyter.errors import Conflict
from det_jupyter.master.service.reports.checkpoint_inbox import CheckpointInbox, write_part
from tests.integration.agent_support import make_plan

CREDENTIALS = AgentCredentials(agent="b", url="https://127.0.0.1:1", certificate="", token="t")
STEP = to_line(FirstStep(at=1.0, steps_completed=1))


def saved(uuid: str, folder: Path) -> str:
    return to_line(
        CheckpointSaved(
            at=2.0,
            uuid=uuid,
            steps_completed=1,
            path=str(folder / uuid),
            size_bytes=1,
            metadata={"name": "ü"},
        )
    )


def chunk(*lines: str) -> Chunk:
    text = "".join(lines)
    size = len(text.encode())
    return Chunk(allocation_id="1.1.1", stream="journal-0", offset=7, size_bytes=size, text=text)


class OfRun(Uploads):
    """The uploads of the run 1.1.1 of agent `b`.

    Attributes:
        broken_off: Why the run was ended, and whether a disk was full.
        num_done: How often there was news of an upload.
    """

    def __init__(self, credentials: AgentCredentials | None = CREDENTIALS) -> None:
        self.run = new_run(make_plan("1.1.1", []), sockets=Path("/sockets"))
        self.broken_off: list[tuple[str, bool]] = []
        self.num_done = 0
        super().__init__("b", credentials, self._note_done, self._note_broken_off)

    def _note_done(self) -> None:
        self.num_done += 1

    def _note_broken_off(self, run: AgentRun, error: str, *, no_room: bool) -> None:
        assert run is self.run
        self.broken_off.append((error, no_room))

    def of(self, chunk: Chunk) -> Chunk | None:
        return self.sendable(self.run, chunk)


class Held(OfRun):
    """Uploads that arrive when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[str] = []

    def _begin(self, run: AgentRun, key: str, upload: Coroutine[Any, Any, None]) -> None:
        upload.close()
        self.begun.append(key)


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    return paths.data_dir() / "checkpoints"


def test_journal_ends_before_a_checkpoint_that_has_not_arrived(own_folder: Path) -> None:
    uploads, whole = Held(), chunk(STEP, saved("u1", own_folder), STEP, saved("u2", own_folder))
    assert uploads.of(whole) == chunk(STEP)
    assert uploads.begun == ["u1"]
    assert uploads.of(chunk(saved("u1", own_folder))) is None


def test_checkpoint_that_has_arrived_is_sent_with_the_masters_path(own_folder: Path) -> None:
    uploads, line = Held(), saved("u1", own_folder)
    uploads._stored["u1"] = "/master/u1"
    sent = uploads.of(chunk(STEP, line, STEP))
    assert sent is not None
    records = [parse_line(each) for each in sent.text.splitlines()]
    assert isinstance(records[1], CheckpointSaved)
    assert records[1].path == "/master/u1"
    # The size is that of the rank's file: the next chunk begins after it.
    assert sent.size_bytes == len((STEP + line + STEP).encode())


def test_checkpoint_before_one_that_cannot_be_uploaded_is_sent_with_the_masters_path(
    own_folder: Path,
) -> None:
    uploads, first = Held(), saved("u1", own_folder)
    uploads._stored["u1"] = "/master/u1"
    uploads._failed[uploads.run.id] = "u2"
    whole = chunk(STEP, first, STEP, saved("u2", own_folder), STEP)
    sent = uploads.of(whole)
    assert sent is not None
    expected = [parse_line(line) for line in (STEP, saved("u1", Path("/master")), STEP)]
    assert [parse_line(line) for line in sent.text.splitlines()] == expected
    assert sent.size_bytes == whole.size_bytes


def test_checkpoints_in_a_shared_folder_and_lines_that_are_no_records_are_sent(
    own_folder: Path,
) -> None:
    whole = chunk(STEP, saved("u1", Path("/shared")), '{"kind": "checkpoint"\n')
    assert Held().of(whole) == whole
    of_master = chunk(saved("u1", own_folder), STEP)
    assert OfRun(None).of(of_master) == of_master  # on its computer


class Master:
    """Stores what is uploaded as the listener's routes do."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "checkpoints"
        self.inbox = CheckpointInbox(folder)
        self.runs = {"1.1.1"}
        self.is_reachable, self.cuts_uploads = True, False
        self.on_request: Callable[[str], object] = lambda method: None

    def open_http(self, _: object) -> httpx.AsyncClient:
        transport = httpx.MockTransport(self._answer)
        return httpx.AsyncClient(transport=transport, base_url="http://m")

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.on_request(request.method)
        if not self.is_reachable or (request.method == "PUT" and self.cuts_uploads):
            raise httpx.WriteError("the network is down")
        parts = request.url.path.split("/")
        if parts[-1] == "clock":
            return httpx.Response(200)
        run, of = parts[6], parts[7]
        if run not in self.runs:
            return httpx.Response(404)
        if of == "files":
            path = self.folder.parent / request.url.params["name"]
            write_part(path, int(request.url.params["offset"]), request.content)
            return httpx.Response(200, json={"path": str(path)})
        uuid = parts[8]
        try:
            if request.method == "PUT":
                place = request.url.params
                self.inbox.put(uuid, place["name"], int(place["offset"]), request.content)
                return httpx.Response(200, json={})
            got = StoredFiles.model_validate_json(request.content)
            stored = self.inbox.commit(uuid, got.files, got.share, got.num_shares)
            return httpx.Response(200, content=stored.model_dump_json())
        except Conflict:
            return httpx.Response(409)
        except OSError as error:
            return httpx.Response(507, json={"problems": [{"path": "", "text": str(error)}]})


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Master:
    master = Master(tmp_path / "master")
    monkeypatch.setattr(destinations, "open_http", master.open_http)
    monkeypatch.setattr(uploads_module, "_PAUSES_S", (0.01, 0.01))
    return master


def upload(uploads: OfRun, *lines: str) -> list[Record]:
    """Return the records that are sent in the end, without notices."""

    async def run() -> list[Record]:
        whole = chunk(*lines)
        while (sent := uploads.of(whole)) is None or (sent.size_bytes < whole.size_bytes):
            await asyncio.sleep(0.01)
        await asyncio.gather(*uploads._tasks.values())  # they remove files at last
        await uploads.close()
        return [parse_line(line) for line in sent.text.splitlines()]

    return [record for record in asyncio.run(run()) if not isinstance(record, Notice)]


def save(folder: Path, uuid: str, **files: str) -> str:
    (folder / uuid).mkdir(parents=True)
    for name, text in files.items():
        (folder / uuid / name).write_text(text)
    return saved(uuid, folder)


def test_files_of_any_name_are_uploaded(own_folder: Path, master: Master) -> None:
    names = ["a?b", "a#b", "a%41", "a b", "ü", "new\nline", "a&offset=7"]
    line = save(own_folder, "u1", **{name: name for name in names})
    (own_folder / "u1" / "link").symlink_to("nothing")
    (record,) = upload(OfRun(), line)
    assert isinstance(record, CheckpointSaved)
    assert record.path == str(master.folder / "u1")
    assert sorted(path.name for path in Path(record.path).iterdir()) == sorted(names)
    assert all((Path(record.path) / name).read_text() == name for name in names)


def test_checkpoint_that_its_rank_has_deleted_holds_nothing_up(
    own_folder: Path, master: Master
) -> None:
    line = saved("u1", own_folder)
    assert upload(OfRun(), line) == [parse_line(line)]


def test_checkpoint_that_the_former_agent_has_uploaded_and_removed_has_the_masters_path(
    own_folder: Path, master: Master
) -> None:
    line = save(own_folder, "u1", a="a")
    (record,) = upload(OfRun(), line)
    shutil.rmtree(own_folder / "u1")
    assert upload(OfRun(), line) == [record]


def test_run_that_the_master_has_given_up_waits_for_no_upload(
    own_folder: Path, master: Master
) -> None:
    master.runs.clear()
    line = save(own_folder, "u1", a="a")
    assert upload(OfRun(), line) == [parse_line(line)]
    assert not master.folder.exists()


def test_copies_stay_until_the_run_is_closed_and_then_the_latest(
    own_folder: Path, master: Master
) -> None:
    async def run() -> None:
        uploads = OfRun()
        whole = chunk(*(save(own_folder, uuid, a=uuid) for uuid in ("u1", "u2", "u3")))
        while (sent := uploads.of(whole)) is None or (sent.size_bytes < whole.size_bytes):
            uploads.remove_copies({"1.1.1"})
            await asyncio.sleep(0.01)
        assert sorted(path.name for path in own_folder.iterdir()) == ["u1", "u2", "u3"]
        uploads.remove_copies(set())
        while [path.name for path in own_folder.iterdir()] != ["u3"]:
            await asyncio.sleep(0.01)
        while uploads._tasks:
            await asyncio.sleep(0.01)
        known = (uploads._stored, uploads._notices, uploads._keys, uploads._uploaded)
        assert not any(known)  # an agent may run for months

    asyncio.run(run())


def test_end_cancels_what_has_not_arrived(own_folder: Path) -> None:
    async def run() -> None:
        uploads = OfRun()
        assert uploads.of(chunk(saved("u1", own_folder))) is None
        await asyncio.sleep(0)
        await uploads.close()
        assert all(task.cancelled() for task in uploads._tasks.values())

    asyncio.run(run())


def test_first_checkpoint_of_an_experiment_is_sent_with_a_notice_of_size_and_time(
    own_folder: Path, master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]

    def write_slowly(*given: Any) -> None:
        now[0] += 2.5
        write_part(*given)

    monkeypatch.setattr(f"{CheckpointInbox.__module__}.write_part", write_slowly)
    clock = SimpleNamespace(monotonic=lambda: now[0], time=time.time)
    monkeypatch.setattr(uploads_module, "time", clock)
    uploads = OfRun()
    upload(uploads, save(own_folder, "u1", a="a"), save(own_folder, "u2", a="a"))
    (line,) = uploads._notices.values()
    notice = parse_line(line)
    assert isinstance(notice, Notice)
    assert notice.text == (
        "checkpoints are uploaded from agent b to the master's computer while the training goes "
        "on; the first, 1 B, took 2.5 s"
    )


def trace(path: Path) -> str:
    return to_line(TraceSaved(at=2.0, order_id=1, first=1, steps=2, path=str(path), size_bytes=3))


def test_trace_is_sent_with_the_masters_path(own_folder: Path, master: Master) -> None:
    path = paths.data_dir() / "traces" / "1" / "1" / "profile-1.json.gz"
    path.parent.mkdir(parents=True)
    path.write_text("abc")
    (record,) = upload(OfRun(), trace(path))
    assert isinstance(record, TraceSaved)
    assert Path(record.path).read_text() == "abc"
    assert Path(record.path).is_relative_to(master.folder.parent)


def test_trace_that_is_gone_is_reported_as_failed(
    own_folder: Path, master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads_module, "GIVE_UP_S", 0.0)
    (record,) = upload(OfRun(), trace(paths.data_dir() / "traces" / "1" / "1" / "gone.json.gz"))
    assert isinstance(record, TraceSaved)
    assert (record.path, record.size_bytes) == ("", 0)
    assert record.error.startswith("it could not be uploaded from agent b: FileNotFoundError")
