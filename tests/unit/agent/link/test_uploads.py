"""Which part of a journal may be sent while checkpoints are on their way."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import httpx
import pytest

from det_jupyter.agent.link import uploads as uploads_module
from det_jupyter.agent.link.uploads import Uploads
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import AgentCredentials, Chunk, StoredFiles
from det_jupyter.contract.run.journal import (
    CheckpointSaved,
    FirstStep,
    Record,
    parse_line,
    to_line,
)
from det_jupyter.errors import Conflict
from det_jupyter.master.service.checkpoint_inbox import CheckpointInbox

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


class Held(Uploads):
    """Uploads that arrive when the test says so."""

    def __init__(self) -> None:
        super().__init__(CREDENTIALS, lambda: None)
        self.begun: list[str] = []

    def _begin(self, allocation_id: str, record: CheckpointSaved) -> None:
        self.begun.append(record.uuid)


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    return paths.data_dir() / "checkpoints"


def test_journal_ends_before_a_checkpoint_that_has_not_arrived(own_folder: Path) -> None:
    uploads, whole = Held(), chunk(STEP, saved("u1", own_folder), STEP, saved("u2", own_folder))
    assert uploads.sendable(whole) == chunk(STEP)
    assert uploads.begun == ["u1"]
    assert uploads.sendable(chunk(saved("u1", own_folder))) is None


def test_checkpoint_that_has_arrived_is_sent_with_the_masters_path(own_folder: Path) -> None:
    uploads, line = Held(), saved("u1", own_folder)
    uploads._stored["u1"] = "/master/u1"
    sent = uploads.sendable(chunk(STEP, line, STEP))
    assert sent is not None
    records = [parse_line(each) for each in sent.text.splitlines()]
    assert isinstance(records[1], CheckpointSaved)
    assert records[1].path == "/master/u1"
    # The size is that of the rank's file: the next chunk begins after it.
    assert sent.size_bytes == len((STEP + line + STEP).encode())


def test_checkpoints_in_a_shared_folder_and_lines_that_are_no_records_are_sent(
    own_folder: Path,
) -> None:
    whole = chunk(STEP, saved("u1", Path("/shared")), '{"kind": "checkpoint"\n')
    assert Held().sendable(whole) == whole


class Master:
    """Stores what is uploaded as the listener's routes do."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "checkpoints"
        self.inbox = CheckpointInbox(folder)
        self.runs = {"1.1.1"}

    def open_http(self, _: object) -> httpx.AsyncClient:
        transport = httpx.MockTransport(self._answer)
        return httpx.AsyncClient(transport=transport, base_url="http://m")

    def _answer(self, request: httpx.Request) -> httpx.Response:
        parts = request.url.path.split("/")
        run, uuid = parts[6], parts[8]
        if run not in self.runs:
            return httpx.Response(404)
        try:
            if request.method == "PUT":
                place = request.url.params
                self.inbox.put(uuid, place["name"], int(place["offset"]), request.content)
                return httpx.Response(200, json={})
            files = StoredFiles.model_validate_json(request.content).files
            return httpx.Response(200, json={"path": self.inbox.commit(uuid, files)})
        except Conflict:
            return httpx.Response(409)


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Master:
    master = Master(tmp_path / "master")
    monkeypatch.setattr(uploads_module, "open_http", master.open_http)
    return master


def upload(uploads: Uploads, *lines: str) -> list[Record]:
    """Return the records that are sent in the end."""

    async def run() -> list[Record]:
        whole = chunk(*lines)
        async with asyncio.timeout(10):
            while (sent := uploads.sendable(whole)) is None or (
                sent.size_bytes < whole.size_bytes
            ):
                await asyncio.sleep(0.01)
        return [parse_line(line) for line in sent.text.splitlines()]

    return asyncio.run(run())


def save(folder: Path, uuid: str, **files: str) -> str:
    (folder / uuid).mkdir(parents=True)
    for name, text in files.items():
        (folder / uuid / name).write_text(text)
    return saved(uuid, folder)


def test_files_of_any_name_are_uploaded(own_folder: Path, master: Master) -> None:
    names = ["a?b", "a#b", "a%41", "a b", "ü", "new\nline", "a&offset=7"]
    line = save(own_folder, "u1", **{name: name for name in names})
    (own_folder / "u1" / "link").symlink_to("nothing")
    (record,) = upload(Uploads(CREDENTIALS, lambda: None), line)
    assert isinstance(record, CheckpointSaved)
    assert record.path == str(master.folder / "u1")
    assert sorted(path.name for path in Path(record.path).iterdir()) == sorted(names)
    assert all((Path(record.path) / name).read_text() == name for name in names)


def test_checkpoint_that_its_rank_has_deleted_holds_nothing_up(
    own_folder: Path, master: Master
) -> None:
    line = saved("u1", own_folder)
    assert upload(Uploads(CREDENTIALS, lambda: None), line) == [parse_line(line)]


def test_checkpoint_that_the_former_agent_has_uploaded_and_removed_has_the_masters_path(
    own_folder: Path, master: Master
) -> None:
    line = save(own_folder, "u1", a="a")
    (record,) = upload(Uploads(CREDENTIALS, lambda: None), line)
    shutil.rmtree(own_folder / "u1")
    assert upload(Uploads(CREDENTIALS, lambda: None), line) == [record]


def test_run_that_the_master_has_given_up_waits_for_no_upload(
    own_folder: Path, master: Master
) -> None:
    master.runs.clear()
    line = save(own_folder, "u1", a="a")
    assert upload(Uploads(CREDENTIALS, lambda: None), line) == [parse_line(line)]
    assert not master.folder.exists()


def test_copies_stay_until_the_run_is_closed_and_then_the_latest(
    own_folder: Path, master: Master
) -> None:
    async def run() -> None:
        uploads = Uploads(CREDENTIALS, lambda: None)
        whole = chunk(*(save(own_folder, uuid, a=uuid) for uuid in ("u1", "u2", "u3")))
        async with asyncio.timeout(10):
            while (sent := uploads.sendable(whole)) is None or sent.text.count("\n") < 3:
                uploads.remove_copies({"1.1.1"})
                await asyncio.sleep(0.01)
            assert sorted(path.name for path in own_folder.iterdir()) == ["u1", "u2", "u3"]
            uploads.remove_copies(set())
            while [path.name for path in own_folder.iterdir()] != ["u3"]:
                await asyncio.sleep(0.01)

    asyncio.run(run())


def test_end_cancels_what_has_not_arrived(own_folder: Path) -> None:
    async def run() -> None:
        uploads = Uploads(CREDENTIALS, lambda: None)
        assert uploads.sendable(chunk(saved("u1", own_folder))) is None
        await asyncio.sleep(0)
        await uploads.close()
        assert all(task.cancelled() for task in uploads._tasks.values())

    asyncio.run(run())
