"""How an agent sends the files of a checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from det_jupyter.agent.link import sending
from det_jupyter.agent.link.sending import RequestRefused, commit, send_file
from det_jupyter.contract.messages import StoredFiles


class Master:
    """Answers requests; `status` is what it says to the next ones."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.parts: list[tuple[int, bytes]] = []
        self.committed: list[StoredFiles] = []

    def answer(self, request: httpx.Request) -> httpx.Response:
        if request.method == "PUT":
            self.parts.append((int(request.url.params["offset"]), request.content))
            return httpx.Response(self.status, content=b"%d" % len(self.parts))
        self.committed.append(StoredFiles.model_validate_json(request.content))
        return httpx.Response(self.status, json={"path": "/master/u1"})

    def run(self, act: Callable[[httpx.AsyncClient], Awaitable[Any]]) -> Any:
        """Return what is done with a connection to it."""

        async def run() -> Any:
            transport = httpx.MockTransport(self.answer)
            async with httpx.AsyncClient(transport=transport, base_url="http://m") as http:
                return await act(http)

        return asyncio.run(run())


@pytest.mark.parametrize(
    ("content", "offset", "size", "parts"),
    [
        (b"0123456789", 0, 10, [(0, b"0123"), (4, b"4567"), (8, b"89")]),
        (b"01234567", 0, 8, [(0, b"0123"), (4, b"4567")]),
        (b"0123456789", 5, 7, [(5, b"56")]),
        (b"", 0, 0, [(0, b"")]),
        (b"0123", 4, 4, [(4, b"")]),
        (b"012345", 0, 10, [(0, b"0123"), (4, b"45"), (6, b"")]),  # it has become shorter
    ],
)
def test_a_file_is_sent_in_parts_up_to_the_size_that_was_seen(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: bytes,
    offset: int,
    size: int,
    parts: list[tuple[int, bytes]],
) -> None:
    monkeypatch.setattr(sending, "_PART_BYTES", 4)
    path, master = tmp_path / "file", Master()
    path.write_bytes(content)
    last = master.run(lambda http: send_file(http, "/files", path, {}, offset, size))
    assert (master.parts, last) == (parts, b"%d" % len(parts))


@pytest.mark.parametrize(
    ("status", "has_files", "is_none", "error"),
    [
        (200, True, False, None),
        (404, True, True, None),  # the run was given up
        (409, False, True, None),  # the rank has deleted the checkpoint
        (409, True, False, "the master answered 409"),
        (500, True, False, "the master answered 500"),
        (507, True, False, "on the master's computer, "),
    ],
)
def test_a_checkpoint_is_committed_unless_it_is_given_up_or_was_deleted(
    tmp_path: Path, status: int, has_files: bool, is_none: bool, error: str | None
) -> None:
    master, folder = Master(status), tmp_path / "u1"
    if has_files:
        folder.mkdir()
        (folder / "state").write_text("12345")

    async def act(http: httpx.AsyncClient) -> Any:
        return await commit(http, "/u1", folder, 1, 3)

    if error is not None:
        with pytest.raises(RequestRefused, match=error) as caught:
            master.run(act)
        assert (caught.value.no_room, caught.value.is_given_up) == (status == 507, False)
    else:
        stored = master.run(act)
        assert (stored is None) is is_none
    expected = StoredFiles(files={"state": 5} if has_files else {}, share=1, num_shares=3)
    assert master.committed == [expected]
