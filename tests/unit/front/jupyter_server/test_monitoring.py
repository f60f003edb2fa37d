"""What the server takes from the reader's documents."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import REGISTRY
from tornado.websocket import WebSocketClosedError

from det_jupyter.contract.documents.codec import pack, unpack
from det_jupyter.contract.documents.patches import changes
from det_jupyter.front.jupyter_server import monitoring
from det_jupyter.front.jupyter_server.monitoring import Monitor
from det_jupyter.front.jupyter_server.reader_sockets import ReaderSocket

ROW = {"name": "a", "status": "running", "ended_at": None}


def made(emit: Callable[[dict[str, Any]], object] = lambda data: None) -> Monitor:
    """Return a monitor that is given its sockets."""
    unused = cast(Any, None)
    return Monitor(emit, find_master=unused, readers=unused, is_needed=unused)


def take(monitor: Monitor, documents: dict[int, Any], op: str, data: Any) -> None:
    asyncio.run(monitor.accept(unpack(pack(data).frame(op=op, id=1)), documents))


def test_changes_of_status_are_events_but_not_those_before_the_first_list() -> None:
    emitted: list[dict[str, Any]] = []
    monitor = made(emitted.append)
    rows = {str(number): ROW | {"id": number} for number in range(1, 30)}
    documents: dict[int, Any] = {}
    take(monitor, documents, "document", {"rows": rows})
    assert (emitted, monitor.is_busy) == ([], True)
    after = {"1": ROW | {"id": 1, "status": "completed", "ended_at": 5.0}}
    take(monitor, documents, "patch", changes({"rows": rows}, {"rows": after}))
    assert emitted == [{"id": 1, "name": "a", "status": "completed", "was": "running"}]
    assert not monitor.is_busy


@pytest.mark.parametrize(
    ("status", "is_busy"), [("running", True), ("queued", True), ("paused", False)]
)
def test_a_server_is_busy_while_an_experiment_runs_or_waits(status: str, is_busy: bool) -> None:
    monitor = made()
    take(monitor, {}, "document", {"rows": {"1": ROW | {"id": 1, "status": status}}})
    assert monitor.is_busy is is_busy


def test_a_reader_that_has_died_is_not_followed_any_more() -> None:
    class Dead:
        async def write(self, message: str) -> None:
            raise WebSocketClosedError

    monitor = made()
    with pytest.raises(WebSocketClosedError):
        asyncio.run(monitor.follow(cast(Any, Dead())))
    assert monitor.is_following is False


class Reader:
    """A reader's socket with frames to be read, and what it is told."""

    def __init__(self, *frames: str | bytes) -> None:
        self.frames = [*frames]
        self.told: list[dict[str, Any]] = []
        self.gauges: list[dict[str, float | None]] = []

    async def write(self, message: str) -> None:
        self.told.append(json.loads(message))

    async def read(self) -> str | bytes | None:
        self.gauges.append(gauges())
        return self.frames.pop(0) if self.frames else None


def gauges() -> dict[str, float | None]:
    slot = {"agent": "left", "slot": "1"}
    return {
        "running": REGISTRY.get_sample_value("det_jupyter_experiments", {"status": "running"}),
        "slots": REGISTRY.get_sample_value("det_jupyter_slots"),
        "used": REGISTRY.get_sample_value("det_jupyter_slots_used"),
        "gpu": REGISTRY.get_sample_value("det_jupyter_gpu_utilization_percent", slot),
    }


def frame(op: str, number: int, version: int, data: Any) -> str | bytes:
    return pack(data).frame(op=op, id=number, version=version)


def listed(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"rows": {str(row["id"]): row for row in rows}}


def line(number: int, status: str, ended_at: float | None = None) -> dict[str, Any]:
    return {"id": number, "name": f"n{number}", "status": status, "ended_at": ended_at}


def test_documents_become_events_and_gauges_until_the_reader_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lists = [
        listed(line(1, "running"), line(2, "queued")),
        listed(line(1, "running"), line(2, "running")),
        listed(line(1, "completed", 2e9), line(3, "paused")),
    ]
    used = [
        {"agents": {"left": {"slots": {"0": {"utilization": None}, "1": {"utilization": value}}}}}
        for value in (40.0, 70.0)
    ]
    reader = Reader(
        '{"op": "hello"}',
        frame("document", 1, 4, lists[0]),
        frame("document", 2, 5, {"num_slots": 8, "num_slots_used": 3}),
        frame("document", 3, 6, used[0]),
        frame("patch", 3, 7, changes(*used)),
        frame("patch", 1, 8, changes(*lists[:2])),
        frame("patch", 1, 9, changes(*lists[1:])),
    )
    events: list[dict[str, Any]] = []
    monitor = made(events.append)
    busy: list[bool] = []

    async def pause(seconds: float) -> None:
        busy.append(monitor.is_busy and monitor.is_following)

    monkeypatch.setattr(monitoring, "asyncio", SimpleNamespace(sleep=pause))
    asyncio.run(monitor.follow(cast(ReaderSocket, reader)))
    assert [(each["op"], each["id"]) for each in reader.told[:3]] == [
        ("follow", 1), ("follow", 2), ("follow", 3),
    ]  # fmt: skip
    assert [each["version"] for each in reader.told[3:]] == [4, 5, 6, 7, 8, 9]
    assert all(each["op"] == "ack" for each in reader.told[3:])
    assert events == [
        {"id": 2, "name": "n2", "status": "running", "was": "queued"},
        {"id": 1, "name": "n1", "status": "completed", "was": "running"},
        {"id": 3, "name": "n3", "status": "paused", "was": ""},
    ]
    assert [each["running"] for each in reader.gauges[2:]] == [1, 1, 1, 1, 2, None]
    assert (reader.gauges[3]["slots"], reader.gauges[3]["used"]) == (8, 3)
    assert [each["gpu"] for each in reader.gauges[4:6]] == [40, 70]
    assert busy == [True] * 5 + [False], "the last one that ran has ended"
    assert gauges() == {"running": None, "slots": 0, "used": 0, "gpu": None}
    assert not monitor.is_following


def test_what_a_new_reader_says_first_is_an_event_where_it_has_changed() -> None:
    events: list[dict[str, Any]] = []
    monitor = made(events.append)
    take(monitor, {}, "document", listed(*(line(number, "running") for number in range(1, 30))))
    rows = [line(number, "failed", 2e9) for number in range(1, 29)] + [line(40, "queued")]
    take(monitor, {}, "document", listed(*rows))
    assert len(events) == 29
    assert events[-1] == {"id": 40, "name": "n40", "status": "queued", "was": ""}
    assert monitor._statuses == {row["id"]: row["status"] for row in rows}
    assert monitor.is_busy, "one waits"


def test_after_a_patch_that_does_not_fit_the_whole_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = Reader(
        frame("document", 1, 4, listed(line(1, "running"))),
        frame("patch", 1, 5, [{"op": "replace", "path": "/rows/7/status", "value": "paused"}]),
        frame("patch", 2, 6, [{"op": "replace", "path": "/num_slots", "value": 1}]),
        frame("document", 1, 7, listed(line(1, "paused"))),
    )
    events: list[dict[str, Any]] = []
    monitor = made(events.append)

    async def pause(seconds: float) -> None: ...

    monkeypatch.setattr(monitoring, "asyncio", SimpleNamespace(sleep=pause))
    asyncio.run(monitor.follow(cast(ReaderSocket, reader)))
    told = [(each["op"], each["id"]) for each in reader.told[3:]]
    assert told == [("ack", 1), ("follow", 1), ("follow", 2), ("ack", 1)]
    assert [each["status"] for each in events] == ["paused"]
