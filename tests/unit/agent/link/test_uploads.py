"""Which part of a journal may be sent while checkpoints are on their way."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from det_jupyter.agent.link.uploads import Uploads
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import AgentCredentials, Chunk
from det_jupyter.contract.run.journal import CheckpointSaved, FirstStep, parse_line, to_line

# Self-signed; nothing is encrypted with it.
PEM = """-----BEGIN CERTIFICATE-----
MIIBUTCB+KADAgECAhQFsmMcGgwa+LlnW4OlGXC7P7CYoTAKBggqhkjOPQQDAjAd
MRswGQYDVQQDDBJkZXRfanVweXRlciBtYXN0ZXIwHhcNMjYxMTIzMTAwNzU4WhcN
MzYxMTIxMTAwNzU4WjAdMRswGQYDVQQDDBJkZXRfanVweXRlciBtYXN0ZXIwWTAT
BgcqhkjOPQIBBggqhkjOPQMBBwNCAARS3qfWwV2S/BlRA4BNyuEPdNfNtObgbdBs
LoaZ9kDbqWRlqFl6aNmscrZT9mFvj5TjovUyDw4TzHtBrbq1rhO+oxYwFDASBgNV
HRMBAf8ECDAGAQH/AgEAMAoGCCqGSM49BAMCA0gAMEUCIQCdwYQEab4/jMp2J9Wk
MKUTdiRrZBid7KVXRLbf1OBV2AIgQARSHcaWCR6qc+xAEk4vxA4W9KTOk09P3FOa
CtGOUcw=
-----END CERTIFICATE-----
"""
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

    def _begin(self, allocation_id: str, uuid: str) -> None:
        self.begun.append(uuid)


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


def test_checkpoint_that_its_rank_has_deleted_holds_nothing_up(own_folder: Path) -> None:
    async def run() -> None:
        arrived = asyncio.Event()
        uploads = Uploads(CREDENTIALS.model_copy(update={"certificate": PEM}), arrived.set)
        assert uploads.sendable(chunk(saved("u1", own_folder))) is None
        await asyncio.wait_for(arrived.wait(), 10)
        assert uploads.sendable(chunk(saved("u1", own_folder))) == chunk(saved("u1", own_folder))

    asyncio.run(run())


def test_end_cancels_what_has_not_arrived(own_folder: Path) -> None:
    async def run() -> None:
        uploads = Uploads(CREDENTIALS, lambda: None)
        assert uploads.sendable(chunk(saved("u1", own_folder))) is None
        await asyncio.sleep(0)
        await uploads.close()
        assert all(task.cancelled() for task in uploads._tasks.values())

    asyncio.run(run())
