"""One follower of the feeder inside the server: Jupyter events, and gauges for Prometheus.

It follows as a page does that may change nothing. Events are changes of an experiment's state,
which are few; samples go to pages only, since each subscriber of events gets all of them.
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
from det_jupyter.front.jupyter_server.feeder import Address
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
    3: ("usage", {"period_s": 15.0}),  # as often as Prometheus asks
}
_EVENTS_AT_ONCE = 10
_PAUSE_S = 0.2  # the most of it that the server does for itself
_MOST_BYTES = 64 * 1024 * 1024


class Follower:
    """Follows feeders, one after the other."""

    def __init__(self, emit: Callable[[dict[str, Any]], object]) -> None:
        self._emit = emit
        self._known: dict[int, str] | None = None  # the status of each experiment
        self._active: set[int] = set()
        self.is_following = False

    @property
    def is_busy(self) -> bool:
        """Whether an experiment trains or waits."""
        return bool(self._active)

    async def follow(self, address: Address) -> None:
        """Follow a feeder until it ends."""
        try:
            socket = await open_socket(address, may_write=False, most_bytes=_MOST_BYTES)
        except (DetError, TimeoutError):
            return
        try:
            for number, (topic, args) in _TOPICS.items():
                question = {"op": "follow", "id": number, "topic": topic, "args": args}
                await socket.write_message(json.dumps(question))
            self.is_following = True
            while (message := await socket.read_message()) is not None:
                frame, columns = _unpacked(message)
                if frame.get("op") == "news":
                    topic, _ = _TOPICS.get(frame["id"], ("", {}))
                    await self._take(topic, frame["data"], columns)
                    await asyncio.sleep(_PAUSE_S)  # the feeder merges what happens meanwhile
                    ack = {"op": "ack", "id": frame["id"], "seq": frame["seq"]}
                    await socket.write_message(json.dumps(ack))
        except WebSocketClosedError:  # it was killed: feeder.py logs that
            return
        finally:
            socket.close()
            self.is_following = False
            self._active.clear()
            _EXPERIMENTS.clear()
            _SLOTS.set(0)
            _SLOTS_USED.set(0)
            _UTILIZATION.clear()

    async def _take(self, topic: str, news: dict[str, Any], columns: bytes) -> None:
        if topic == "cluster":
            _SLOTS.set(news["num_slots"])
            _SLOTS_USED.set(news["num_slots_used"])
        elif topic == "experiments":
            await self._take_experiments(news, _numbers(news["gone"], columns))
        elif topic == "usage":
            _take_usage(news, columns)

    async def _take_experiments(self, news: dict[str, Any], gone: Sequence[Any]) -> None:
        before, rows = self._known, news["rows"]
        changes = [row | {"was": (before or {}).get(row["id"], "")} for row in rows]
        known = {} if news["is_whole"] or before is None else before
        if news["is_whole"]:
            self._active.clear()
        for row in rows:
            known[row["id"]] = row["status"]
            is_active = row["ended_at"] is None and row["status"] != "paused"
            (self._active.add if is_active else self._active.discard)(row["id"])
        for number in map(int, gone):
            known.pop(number, None)
            self._active.discard(number)
        self._known = known
        _EXPERIMENTS.clear()
        for status, number in Counter(known.values()).items():
            _EXPERIMENTS.labels(status=status).set(number)
        if before is not None:  # else all of them are as they were before we looked
            await self._tell([row for row in changes if row["was"] != row["status"]])

    async def _tell(self, changes: list[dict[str, Any]]) -> None:
        for index, row in enumerate(changes):
            fields = {"id": row["id"], "name": row["name"]}
            self._emit({**fields, "status": row["status"], "was": row["was"]})
            if index % _EVENTS_AT_ONCE == _EVENTS_AT_ONCE - 1:
                await asyncio.sleep(0)  # the server has more to do


def _take_usage(news: dict[str, Any], columns: bytes) -> None:
    for agent in news["agents"]:
        for slot, percents in zip(agent["slot_ids"], agent["utilization"], strict=True):
            known = _numbers(percents, columns)
            if known and known[-1] is not None and not math.isnan(known[-1]):
                _UTILIZATION.labels(agent=agent["agent_id"], slot=slot).set(known[-1])


def _numbers(numbers: Any, columns: bytes) -> Sequence[Any]:
    """Return a list of numbers, which may be a column."""
    if isinstance(numbers, dict):
        first, length = numbers["$f64"]
        return unpack_from(f"<{length}d", columns, first * 8)
    return cast("list[Any]", numbers)


def _unpacked(message: str | bytes) -> tuple[dict[str, Any], bytes]:
    """Return a frame, and the columns of a binary one (messages/pages.py)."""
    if isinstance(message, str):
        return json.loads(message), b""
    end = 4 + int.from_bytes(message[:4], "little")
    return json.loads(message[4:end]), message[end:]
