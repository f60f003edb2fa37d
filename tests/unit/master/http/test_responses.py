"""Large lists are sent in chunks, and a drive that does not respond delays no request."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.types import Message

from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import Wire
from det_jupyter.master.http import responses


class Item(Wire):
    """An item of a list."""

    number: int


async def sent(num_items: int) -> list[bytes]:
    """Return the chunks of a response with this many items."""
    made: list[int] = []
    bodies: list[tuple[int, bytes]] = []

    def items() -> Iterator[Item]:
        for number in range(num_items):
            made.append(number)
            yield Item(number=number)

    async def receive() -> Message:
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body" and message["body"]:
            bodies.append((len(made), message["body"]))

    scope = {"type": "http", "method": "GET", "path": "/"}
    await responses.streamed_list(items())(scope, receive, send)
    assert [num for num, _ in bodies] == sorted({num for num, _ in bodies}), "made when sent"
    return [body for _, body in bodies]


@pytest.mark.parametrize(("num_items", "num_chunks"), [(0, 1), (1, 1), (41, 6)])
def test_a_list_is_whole_though_its_items_are_made_one_by_one(
    num_items: int, num_chunks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(responses, "_CHUNK_CHARS", 100)
    chunks = asyncio.run(sent(num_items))
    assert len(chunks) == num_chunks
    assert json.loads(b"".join(chunks)) == [{"number": number} for number in range(num_items)]


def test_a_drive_that_does_not_respond_is_named_and_checked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    responds_again, checks = threading.Event(), []

    def find_full_folder() -> str:
        checks.append(1)
        responds_again.wait(600)
        return f"full {len(checks)}"

    async def request_twice_and_later_again() -> None:
        disk_space = responses.DiskSpace("/data")
        both = await asyncio.gather(disk_space.problem(), disk_space.problem(max_age_s=0))
        for problem in both:
            assert problem == "the drive of /data has not answered for 0 s"
        responds_again.set()
        monkeypatch.setattr(responses, "_DISK_CHECK_TIMEOUT_S", 60)
        assert await disk_space.problem() == "full 1"
        assert await disk_space.problem() == "full 1"
        assert len(checks) == 1
        assert await disk_space.problem(max_age_s=0) == "full 2"

    monkeypatch.setattr(paths, "find_full_folder", find_full_folder)
    monkeypatch.setattr(responses, "_DISK_CHECK_TIMEOUT_S", 0.05)
    asyncio.run(request_twice_and_later_again())
