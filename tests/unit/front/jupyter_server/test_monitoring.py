"""What the server takes from news whose long lists of numbers are columns."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tornado.websocket import WebSocketClosedError

from det_jupyter.front.jupyter_server import monitoring
from det_jupyter.front.jupyter_server.feeder_process import Address
from det_jupyter.front.jupyter_server.monitoring import Monitor, _decoded
from det_jupyter.front.pages.codec import MIN_LENGTH, pack


def take(monitor: Monitor, topic: str, news: dict[str, Any]) -> None:
    """Let it take news in the form in which a feeder sends them."""
    frame, columns = _decoded(pack(news).frame(op="news", id=1, seq=1))
    asyncio.run(monitor._apply(topic, frame["data"], columns))


def test_many_experiments_that_are_deleted_at_once_are_forgotten() -> None:
    monitor = Monitor(lambda data: None)
    row = {"name": "a", "status": "running", "ended_at": None}
    numbers = list(range(1, MIN_LENGTH + 2))
    rows = [row | {"id": number} for number in numbers]
    take(monitor, "experiments", {"is_whole": True, "rows": rows, "gone": []})
    take(monitor, "experiments", {"is_whole": False, "rows": [], "gone": numbers[1:]})
    assert monitor._statuses == {1: "running"}
    assert monitor.is_busy
    take(monitor, "experiments", {"is_whole": False, "rows": [], "gone": [1]})
    assert not monitor.is_busy


def test_what_follows_a_feeder_that_has_died_ends_without_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Dead:
        async def write_message(self, message: str) -> None:
            raise WebSocketClosedError

        def close(self) -> None: ...

    async def open_socket(*_: object, **__: object) -> Dead:
        return Dead()

    monkeypatch.setattr(monitoring, "open_socket", open_socket)
    monitor = Monitor(lambda data: None)
    asyncio.run(monitor.follow(Address("ws://127.0.0.1:1/socket", "token")))
    assert monitor.is_following is False
