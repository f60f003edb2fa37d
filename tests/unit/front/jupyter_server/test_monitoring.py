"""What the server takes from the feeder's documents."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tornado.websocket import WebSocketClosedError

from det_jupyter.contract.documents.codec import pack, unpack
from det_jupyter.contract.documents.patches import changes
from det_jupyter.front.jupyter_server import monitoring
from det_jupyter.front.jupyter_server.feeder_process import Address
from det_jupyter.front.jupyter_server.monitoring import Monitor

ROW = {"name": "a", "status": "running", "ended_at": None}


def take(monitor: Monitor, op: str, data: Any) -> None:
    asyncio.run(monitor.accept(unpack(pack(data).frame(op=op, id=1))))


def test_changes_of_status_are_events_but_not_those_before_the_first_list() -> None:
    emitted: list[dict[str, Any]] = []
    monitor = Monitor(emitted.append)
    rows = {str(number): ROW | {"id": number} for number in range(1, 30)}
    take(monitor, "document", {"rows": rows})
    assert (emitted, monitor.is_busy) == ([], True)
    after = {"1": ROW | {"id": 1, "status": "completed", "ended_at": 5.0}}
    take(monitor, "patch", changes({"rows": rows}, {"rows": after}))
    assert emitted == [{"id": 1, "name": "a", "status": "completed", "was": "running"}]
    assert not monitor.is_busy


@pytest.mark.parametrize(
    ("status", "is_busy"), [("running", True), ("queued", True), ("paused", False)]
)
def test_a_server_is_busy_while_an_experiment_runs_or_waits(status: str, is_busy: bool) -> None:
    monitor = Monitor(lambda data: None)
    take(monitor, "document", {"rows": {"1": ROW | {"id": 1, "status": status}}})
    assert monitor.is_busy is is_busy


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
