"""Jupyter events and Prometheus gauges, made from the reader's documents.

It follows them over a read-only socket, as a page does: from the first page that has a reader
until some time after the last one, and for as long as an experiment runs or waits. A reader ends
by itself without a socket, and while one runs its master does not end by itself.

Events are emitted for changes of an experiment's status, which are few, and not for samples: each
subscriber receives all events.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any

from jsonpatch import JsonPatchException, JsonPointerException
from prometheus_client import Gauge
from tornado.websocket import WebSocketClosedError

from det_jupyter.contract.documents.codec import unpack
from det_jupyter.contract.documents.patches import Document, apply_changes
from det_jupyter.contract.messages import MasterInfo
from det_jupyter.errors import DetError
from det_jupyter.front.jupyter_server.reader_sockets import ReaderSocket, ReaderSockets

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
_EVENTS_AT_ONCE = 10  # most events before other tasks of the server run
_PAUSE_S = 0.2  # between versions
_AGAIN_S = 1.0  # pause before the next try if there is no reader
_LINGER_S = 900.0  # how long it follows after the last page, if nothing runs or waits
_CHECK_S = 30.0  # interval of the check whether it is still needed


class Monitor:
    """Follows readers, one after the other, while that is needed.

    Args:
        emit: Emits a Jupyter event with this data.
        find_master: Returns the running master.
        readers: Opens the sockets.
        is_needed: Whether a page is open.
    """

    def __init__(
        self,
        emit: Callable[[dict[str, Any]], object],
        *,
        find_master: Callable[[], Awaitable[MasterInfo]],
        readers: ReaderSockets,
        is_needed: Callable[[], bool],
    ) -> None:
        self._emit = emit
        self._find_master = find_master
        self._readers = readers
        self._is_needed = is_needed
        self._task: asyncio.Task[None] | None = None
        self._statuses: dict[int, str] | None = None  # by experiment; None before the first list
        self.is_busy = False  # whether an experiment runs or waits
        self.is_following = False

    def begin(self) -> None:
        """Begin to follow readers, unless that runs already; called when a page has a reader."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._follow_while_needed())

    async def close(self) -> None:
        """End following."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _follow_while_needed(self) -> None:
        following = asyncio.create_task(self._follow_readers())
        needed_at = time.monotonic()
        try:
            while time.monotonic() - needed_at < _LINGER_S and not following.done():
                await asyncio.wait([following], timeout=_CHECK_S)
                if self._is_needed() or self.is_busy:
                    needed_at = time.monotonic()
        finally:
            following.cancel()
            await asyncio.wait([following])

    async def _follow_readers(self) -> None:
        while True:
            try:
                info = await self._find_master()
                async with self._readers.open(info, may_write=False) as socket:
                    await self.follow(socket)
            except DetError as error:
                logger.debug("no reader is followed: %s", error)
            except WebSocketClosedError:  # the reader was killed; the master logs that
                pass
            except Exception:  # the task's boundary: the next reader may be followed
                logger.exception("following a reader")
            await asyncio.sleep(_AGAIN_S)

    async def follow(self, socket: ReaderSocket) -> None:
        """Follow a reader until its socket ends."""
        try:
            documents: dict[int, Document] = {}
            for number in _FOLLOWED:
                await socket.write(_request(number))
            self.is_following = True
            while (message := await socket.read()) is not None:
                frame = unpack(message)
                if frame["op"] in ("document", "patch"):
                    await socket.write(await self._answer_to(frame, documents))
        finally:
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
        await asyncio.sleep(_PAUSE_S)  # the reader merges what happens meanwhile
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
    """Return the frame that follows a document; repeated, it requests the whole document."""
    document, args = _FOLLOWED[number]
    return json.dumps({"op": "follow", "id": number, "document": document, "args": args})


def _apply_usage(usage: dict[str, Any]) -> None:
    for agent_id, agent in usage["agents"].items():
        for slot_id, slot in agent["slots"].items():
            if slot["utilization"] is not None:
                _UTILIZATION.labels(agent=agent_id, slot=slot_id).set(slot["utilization"])
