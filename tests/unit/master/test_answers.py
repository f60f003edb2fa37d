"""Large answers are sent in parts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.types import Message

from det_jupyter.contract.messages import Wire
from det_jupyter.master.http import answers


class Item(Wire):
    """A part of an answer."""

    number: int


async def sent(num_items: int) -> list[bytes]:
    """Return the parts of the body of an answer with so many items."""
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
    await answers.streamed(items())(scope, receive, send)
    assert [num for num, _ in bodies] == sorted({num for num, _ in bodies}), "made when sent"
    return [body for _, body in bodies]


@pytest.mark.parametrize(("num_items", "num_parts"), [(0, 1), (1, 1), (41, 6)])
def test_a_list_is_whole_though_its_items_are_made_one_by_one(
    num_items: int, num_parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "_PART_CHARS", 100)
    parts = asyncio.run(sent(num_items))
    assert len(parts) == num_parts
    assert json.loads(b"".join(parts)) == [{"number": number} for number in range(num_items)]
