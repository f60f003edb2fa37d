"""Jupyter events and Prometheus gauges, made from the feeder's documents.

It follows them over a read-only socket, as a page does. Events are emitted for changes of an
experiment's status, which are few, and not for samples: each subscriber receives all events.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from jsonpatch import JsonPatchException, JsonPointerException
from prometheus_client import Gauge
from tornado.websocket import WebSocketClosedError

from det_jupyter.contract.documents.codec import unpack
from det_jupyter.contract.documents.patches import Document, apply_changes
from det_jupyter.errors import DetError
from det_jupyter.front.jupyter_server.feeder_process import Address
from det_jupyter.front.jupyter_server.relay import open_socket

logger = logging.getLogger(__name__)

SCHEMA = Path(__file__).parent / "events" / "experiment.yaml"
SCHEMA_ID = "https://github.com/det-jupyter/det_jupyter/events/experiment"

_EXPERIMENTS = Gauge("det_jupyter_experiments", "Experiments of det_jupyter", ["status"])
_SLOTS = Gauge("det_jupyter_slots", "Slots (GPUs, or CPU places) that det_jupyter has")
_SLOTS_USED = Gauge("det_jupyter_slots_used", "Slots that trials of det_jupyter hold")

_UTILIZATION = Gauge(
    "det_jupyter_gpu_utilization_percent", "What a GPU did last", ["agent", "slot"]
)

_FOLLOWED: dict[int, tuple[str, dict[str, Any]]] = {
    1: ("experiments", {}),
    2: ("cluster", {}),
    3: ("usage", {"period_s": 15.0}),  # the usual scrape interval of Prometheus
}
_EVENTS_AT_ONCE = 10  # before other tasks of the server run
_PAUSE_S = 0.2  # between versions
_MAX_FRAME_BYTES = 64 * 1024 * 1024


class Monitor:
    """Follows feeders, one after the other.

    Args:
        emit: Emits a Jupyter event with this data.
    """

    def __init__(self, emit: Callable[[dict[str, Any]], object]) -> None:
        self._emit = emit
        self._statuses: dict[int, str] | None = None  # by experiment; None before the first list
        self.is_busy = False  # whether an experiment runs or waits
        self.is_following = False

    async def follow(self, address: Address) -> None:
        """Follow a feeder until its process ends."""
        try:
            socket = await open_socket(address, may_write=False, most_bytes=_MAX_FRAME_BYTES)
        except (DetError, TimeoutError):
            return
        try:
            documents: dict[int, Document] = {}
            for number in _FOLLOWED:
                await socket.write_message(_request(number))
            self.is_following = True
            while (message := await socket.read_message()) is not None:
                frame = unpack(message)
                if frame["op"] in ("document", "patch"):
                    await socket.write_message(await self._answer_to(frame, documents))
        except WebSocketClosedError:  # the feeder was killed; feeder_process.py logs that
            return
        finally:
            socket.close()
            self.is_following = self.is_busy = False
            _EXPERIMENTS.clear()
            _SLOTS.set(0)
            _SLOTS_USED.set(0)
            _UTILIZATION.clear()

    async def _answer_to(self, frame: dict[str, Any], documents: dict[int, Document]) -> str:
        """Take a version; return its acknowledgement, or a request for the whole document."""
        number = frame["id"]
        try:
            await self.accept(frame, documents)
        except (KeyError, JsonPatchException, JsonPointerException) as error:
            logger.warning("a patch of %s does not fit: %s", _FOLLOWED[number][0], error)
            documents.pop(number, None)
            return _request(number)
        await asyncio.sleep(_PAUSE_S)  # the feeder merges what happens meanwhile
        return json.dumps({"op": "ack", "id": number, "version": frame["version"]})

    async def accept(self, frame: dict[str, Any], documents: dict[int, Document]) -> None:
        """Take the frame `document` or `patch`: change `documents`, set gauges, emit events.

        Raises:
            KeyError, JsonPatchException, JsonPointerException: A patch is of another version.
        """
        number, data = frame["id"], frame["data"]
        if frame["op"] == "patch":
            data = apply_changes(documents[number], data)
        documents[number] = data
        match _FOLLOWED[number][0]:
            case "cluster":
                _SLOTS.set(data["num_slots"])
                _SLOTS_USED.set(data["num_slots_used"])
            case "experiments":
                await self._apply_experiments(data["rows"].values())
            case "usage":
                _apply_usage(data)

    async def _apply_experiments(self, rows: Collection[dict[str, Any]]) -> None:
        before, self._statuses = self._statuses, {row["id"]: row["status"] for row in rows}
        self.is_busy = any(row["ended_at"] is None and row["status"] != "paused" for row in rows)
        _EXPERIMENTS.clear()
        for status, number in Counter(self._statuses.values()).items():
            _EXPERIMENTS.labels(status=status).set(number)
        if before is None:
            return  # the first list contains no changes
        changed = [row for row in rows if before.get(row["id"]) != row["status"]]
        for index, row in enumerate(changed):
            fields = {"id": row["id"], "name": row["name"]}
            self._emit({**fields, "status": row["status"], "was": before.get(row["id"], "")})
            if index % _EVENTS_AT_ONCE == _EVENTS_AT_ONCE - 1:
                await asyncio.sleep(0)  # lets other tasks of the server run


def _request(number: int) -> str:
    """Return the frame that follows a document; if it is followed already, its whole is sent."""
    document, args = _FOLLOWED[number]
    return json.dumps({"op": "follow", "id": number, "document": document, "args": args})


def _apply_usage(usage: dict[str, Any]) -> None:
    for agent_id, agent in usage["agents"].items():
        for slot_id, slot in agent["slots"].items():
            if slot["utilization"] is not None:
                _UTILIZATION.labels(agent=agent_id, slot=slot_id).set(slot["utilization"])
