"""Jupyter events and Prometheus gauges, made from the feeder's news.

It follows topics over a read-only socket, as a page does. Events are emitted for changes of an
experiment's status, which are few, and not for samples: each subscriber receives all events.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from struct import unpack_from
from typing import Any, cast

from prometheus_client import Gauge
from tornado.websocket import WebSocketClosedError

from det_jupyter.errors import DetError
from det_jupyter.front.jupyter_server.feeder_process import Address
from det_jupyter.front.jupyter_server.relay import open_socket

SCHEMA = Path(__file__).parent / "events" / "experiment.yaml"
SCHEMA_ID = "https://github.com/det-jupyter/det_jupyter/events/experiment"

_EXPERIMENTS = Gauge("det_jupyter_experiments", "Experiments of det_jupyter", ["status"])
_SLOTS = Gauge("det_jupyter_slots", "Slots (GPUs, or CPU places) that det_jupyter has")
_SLOTS_USED = Gauge("det_jupyter_slots_used", "Slots that trials of det_jupyter hold")

_UTILIZATION = Gauge(
    "det_jupyter_gpu_utilization_percent", "What a GPU did last", ["agent", "slot"]
)

_TOPICS: dict[int, tuple[str, dict[str, Any]]] = {
    1: ("experiments", {}),
    2: ("cluster", {}),
    3: ("usage", {"period_s": 15.0}),  # the usual scrape interval of Prometheus
}
_EVENTS_AT_ONCE = 10  # before other tasks of the server run
_PAUSE_S = 0.2  # between news
_MAX_FRAME_BYTES = 64 * 1024 * 1024


class Monitor:
    """Follows feeders, one after the other.

    Args:
        emit: Emits a Jupyter event with this data.
    """

    def __init__(self, emit: Callable[[dict[str, Any]], object]) -> None:
        self._emit = emit
        self._statuses: dict[int, str] | None = None  # by experiment; None before the first news
        self._active: set[int] = set()
        self.is_following = False

    @property
    def is_busy(self) -> bool:
        """Whether an experiment runs or waits."""
        return bool(self._active)

    async def follow(self, address: Address) -> None:
        """Follow a feeder until its process ends."""
        try:
            socket = await open_socket(address, may_write=False, most_bytes=_MAX_FRAME_BYTES)
        except (DetError, TimeoutError):
            return
        try:
            for number, (topic, args) in _TOPICS.items():
                request = {"op": "follow", "id": number, "topic": topic, "args": args}
                await socket.write_message(json.dumps(request))
            self.is_following = True
            while (message := await socket.read_message()) is not None:
                frame, columns = _decoded(message)
                if frame.get("op") == "news":
                    topic, _ = _TOPICS.get(frame["id"], ("", {}))
                    await self._apply(topic, frame["data"], columns)
                    await asyncio.sleep(_PAUSE_S)  # the feeder merges what happens meanwhile
                    ack = {"op": "ack", "id": frame["id"], "seq": frame["seq"]}
                    await socket.write_message(json.dumps(ack))
        except WebSocketClosedError:  # the feeder was killed; feeder_process.py logs that
            return
        finally:
            socket.close()
            self.is_following = False
            self._active.clear()
            _EXPERIMENTS.clear()
            _SLOTS.set(0)
            _SLOTS_USED.set(0)
            _UTILIZATION.clear()

    async def _apply(self, topic: str, news: dict[str, Any], columns: bytes) -> None:
        if topic == "cluster":
            _SLOTS.set(news["num_slots"])
            _SLOTS_USED.set(news["num_slots_used"])
        elif topic == "experiments":
            await self._apply_experiments(news, _numbers(news["gone"], columns))
        elif topic == "usage":
            _apply_usage(news, columns)

    async def _apply_experiments(self, news: dict[str, Any], gone: Sequence[Any]) -> None:
        before, rows = self._statuses, news["rows"]
        changes = [row | {"was": (before or {}).get(row["id"], "")} for row in rows]
        statuses = {} if news["is_whole"] or before is None else before
        if news["is_whole"]:
            self._active.clear()
        for row in rows:
            statuses[row["id"]] = row["status"]
            is_active = row["ended_at"] is None and row["status"] != "paused"
            (self._active.add if is_active else self._active.discard)(row["id"])
        for number in map(int, gone):
            statuses.pop(number, None)
            self._active.discard(number)
        self._statuses = statuses
        _EXPERIMENTS.clear()
        for status, number in Counter(statuses.values()).items():
            _EXPERIMENTS.labels(status=status).set(number)
        if before is not None:  # the first news contain no changes
            await self._emit_changes([row for row in changes if row["was"] != row["status"]])

    async def _emit_changes(self, changes: list[dict[str, Any]]) -> None:
        for index, row in enumerate(changes):
            fields = {"id": row["id"], "name": row["name"]}
            self._emit({**fields, "status": row["status"], "was": row["was"]})
            if index % _EVENTS_AT_ONCE == _EVENTS_AT_ONCE - 1:
                await asyncio.sleep(0)  # lets other tasks of the server run


def _apply_usage(news: dict[str, Any], columns: bytes) -> None:
    for agent in news["agents"]:
        for slot, percents in zip(agent["slot_ids"], agent["utilization"], strict=True):
            values = _numbers(percents, columns)
            if values and values[-1] is not None and not math.isnan(values[-1]):
                _UTILIZATION.labels(agent=agent["agent_id"], slot=slot).set(values[-1])


def _numbers(numbers: Any, columns: bytes) -> Sequence[Any]:
    """Return a list of numbers, decoded if it refers to a column."""
    if isinstance(numbers, dict):
        first, length = numbers["$f64"]
        return unpack_from(f"<{length}d", columns, first * 8)
    return cast("list[Any]", numbers)


def _decoded(message: str | bytes) -> tuple[dict[str, Any], bytes]:
    """Return a frame's fields and its columns (messages/pages.py); a text frame has none."""
    if isinstance(message, str):
        return json.loads(message), b""
    end = 4 + int.from_bytes(message[:4], "little")
    return json.loads(message[4:end]), message[end:]
