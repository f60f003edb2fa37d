"""What the server takes from news whose long lists of numbers are columns."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import REGISTRY
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


class Feeder:
    """A feeder's socket with frames to be read, and what it is told."""

    def __init__(self, *frames: str | bytes) -> None:
        self.frames = [*frames]
        self.told: list[dict[str, Any]] = []
        self.gauges: list[dict[str, float | None]] = []
        self.is_closed = False

    async def write_message(self, message: str) -> None:
        self.told.append(json.loads(message))

    async def read_message(self) -> str | bytes | None:
        self.gauges.append(gauges())
        return self.frames.pop(0) if self.frames else None

    def close(self) -> None:
        self.is_closed = True


def gauges() -> dict[str, float | None]:
    slot = {"agent": "left", "slot": "1"}
    return {
        "running": REGISTRY.get_sample_value("det_jupyter_experiments", {"status": "running"}),
        "slots": REGISTRY.get_sample_value("det_jupyter_slots"),
        "used": REGISTRY.get_sample_value("det_jupyter_slots_used"),
        "gpu": REGISTRY.get_sample_value("det_jupyter_gpu_utilization_percent", slot),
    }


def news(number: int, seq: int, **data: Any) -> str | bytes:
    return pack(data).frame(op="news", id=number, seq=seq)


def line(number: int, status: str, ended_at: float | None = None) -> dict[str, Any]:
    return {"id": number, "name": f"n{number}", "status": status, "ended_at": ended_at}


def test_news_become_events_and_gauges_until_the_feeder_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = {"agent_id": "left", "slot_ids": [0, 1]}
    feeder = Feeder(
        '{"op": "hello"}',
        news(1, 4, is_whole=True, rows=[line(1, "running"), line(2, "queued")], gone=[]),
        news(2, 5, num_slots=8, num_slots_used=3),
        news(3, 6, agents=[gpu | {"utilization": [[None], [5.0, 40.0]]}]),
        news(3, 7, agents=[gpu | {"utilization": [[], [*map(float, range(20)), 70.0]]}]),
        news(1, 8, is_whole=False, rows=[line(2, "running"), line(1, "running")], gone=[]),
        news(1, 9, is_whole=False, rows=[line(1, "completed", 2e9), line(3, "paused")], gone=[2]),
    )
    events: list[dict[str, Any]] = []
    monitor = Monitor(events.append)
    busy: list[bool] = []

    async def open_socket(address: Address, *, may_write: bool, most_bytes: int) -> Feeder:
        assert not may_write
        return feeder

    async def pause(seconds: float) -> None:
        busy.append(monitor.is_busy and monitor.is_following)

    monkeypatch.setattr(monitoring, "open_socket", open_socket)
    monkeypatch.setattr(monitoring, "asyncio", SimpleNamespace(sleep=pause))
    asyncio.run(monitor.follow(Address("ws://127.0.0.1:1/socket", "token")))
    assert [(each["op"], each["id"]) for each in feeder.told[:3]] == [
        ("follow", 1), ("follow", 2), ("follow", 3),
    ]  # fmt: skip
    assert [each["seq"] for each in feeder.told[3:]] == [4, 5, 6, 7, 8, 9]
    assert all(each["op"] == "ack" for each in feeder.told[3:])
    assert events == [
        {"id": 2, "name": "n2", "status": "running", "was": "queued"},
        {"id": 1, "name": "n1", "status": "completed", "was": "running"},
        {"id": 3, "name": "n3", "status": "paused", "was": ""},
    ]
    assert [each["running"] for each in feeder.gauges[2:]] == [1, 1, 1, 1, 2, None]
    assert (feeder.gauges[3]["slots"], feeder.gauges[3]["used"]) == (8, 3)
    assert [each["gpu"] for each in feeder.gauges[4:6]] == [40, 70]
    assert busy == [True] * 5 + [False], "the last one that ran has ended"
    assert feeder.is_closed
    assert gauges() == {"running": None, "slots": 0, "used": 0, "gpu": None}
    assert not monitor.is_following


def test_what_a_new_feeder_says_first_is_an_event_where_it_has_changed() -> None:
    events: list[dict[str, Any]] = []
    monitor = Monitor(events.append)
    rows = [line(number, "running") for number in range(1, 30)]
    take(monitor, "experiments", {"is_whole": True, "rows": rows, "gone": []})
    rows = [line(number, "failed", 2e9) for number in range(1, 29)] + [line(40, "queued")]
    take(monitor, "experiments", {"is_whole": True, "rows": rows, "gone": []})
    assert len(events) == 29
    assert events[-1] == {"id": 40, "name": "n40", "status": "queued", "was": ""}
    assert monitor._statuses == {row["id"]: row["status"] for row in rows}
    assert monitor.is_busy, "one waits"
