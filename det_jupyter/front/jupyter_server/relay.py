"""Relays the frames of a tab's socket to the feeder and back, with backpressure.

Each direction reads a frame only after it has written the one before. So nothing accumulates here
for a page that reads slowly: the feeder waits for it and sends fewer versions.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from jupyter_server.auth.decorator import ws_authenticated
from jupyter_server.base.websocket import WebSocketMixin
from tornado.httpclient import HTTPError, HTTPRequest
from tornado.simple_httpclient import HTTPTimeoutError
from tornado.websocket import (
    WebSocketClientConnection,
    WebSocketClosedError,
    WebSocketHandler,
    websocket_connect,
)

from det_jupyter.errors import DetError
from det_jupyter.front.jupyter_server.feeder_process import Address, FeederProcess
from det_jupyter.front.jupyter_server.handlers import RefusingHandler, allowed_actions, require
from det_jupyter.front.jupyter_server.routes import ACTIONS, PREFIX

_FEEDER_ENDED, _TRY_LATER = 1012, 1013
_CONNECT_S = 10.0
_REASON_BYTES = 120  # at most 123 fit into a close frame
# The resources that a user must be allowed to read, by document and by type of question.
_DOCUMENTS = {"cluster": "cluster", "usage": "cluster"}  # others: experiments
_QUESTIONS = {"logs": "logs", "stacks": "kernels"}  # series of an agent: cluster


async def open_socket(
    address: Address, *, may_write: bool, most_bytes: int
) -> WebSocketClientConnection:
    """Return an open socket to the feeder.

    Raises:
        TimeoutError: The feeder does not answer.
        DetError: The feeder cannot be reached.
    """
    request = HTTPRequest(
        address.url, headers=address.headers(may_write=may_write), request_timeout=_CONNECT_S
    )
    try:
        return await websocket_connect(request, max_message_size=most_bytes)
    except HTTPTimeoutError:
        raise TimeoutError from None
    except (OSError, HTTPError) as error:
        raise DetError(f"the feeder cannot be reached ({error})") from None


class ReadGate:
    """Refuses frames for resources that the user may not read.

    Changes are refused by the feeder. Frames of users who may do everything, which is usual, are
    not parsed.

    Args:
        may: The allowed actions by resource.
    """

    def __init__(self, may: Mapping[str, Sequence[str]]) -> None:
        self._may = may
        self._is_open = all(len(actions) == len(ACTIONS) for actions in may.values())

    @property
    def may_write(self) -> bool:
        """Whether the user may change experiments."""
        return "write" in self._may["experiments"]

    def refusal(self, message: str | bytes) -> str:
        """Return the error frame with which a frame is refused; "" if it may be relayed."""
        if self._is_open:
            return ""
        try:
            frame = json.loads(message)
            resource, op = _resource_of(frame), frame["op"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return ""  # the feeder answers with the problem
        if "read" in self._may[resource]:
            return ""
        problem = f"you are not allowed to read {PREFIX}{resource} on this Jupyter server"
        answer = {"op": "answer" if op == "ask" else "error", "id": frame.get("id")}
        return json.dumps({**answer, "error": problem})


def _resource_of(frame: dict[str, object]) -> str:
    if frame["op"] == "follow":
        return _DOCUMENTS.get(str(frame.get("document")), "experiments")
    question = frame.get("question")
    if not isinstance(question, dict):
        return "experiments"
    if question.get("type") == "series" and question.get("agent_id") is not None:
        return "cluster"
    return _QUESTIONS.get(str(question.get("type")), "experiments")


class Relay(WebSocketMixin, WebSocketHandler, RefusingHandler):
    """The tab's side of a relayed socket; it opens the feeder's side."""

    auth_resource = f"{PREFIX}experiments"

    def initialize(self, feeder: FeederProcess, tabs: set[Relay], bounds: dict[str, int]) -> None:
        """Take the collaborators; `bounds` are the largest frames in bytes, by origin."""
        self._feeder, self._tabs, self._bounds = feeder, tabs, bounds
        self._feed: WebSocketClientConnection | None = None
        self._down: asyncio.Task[None] | None = None

    @property
    def max_message_size(self) -> int:
        """The most bytes of a frame from the page."""
        return self._bounds["from_page"]

    @property
    def ping_interval(self) -> float:
        """Seconds between pings, which tornado sends; Jupyter's mixin has milliseconds."""
        return float(super().ping_interval) / 1000

    @property
    def ping_timeout(self) -> float:
        """Seconds after which the socket of a page that does not answer a ping is closed."""
        return self.ping_interval

    @ws_authenticated
    async def get(self, *args: Any, **kwargs: Any) -> None:
        """Open the socket, if this user may see experiments."""
        await require(self, "read", "experiments")
        self._gate = ReadGate(await allowed_actions(self))
        await super().get(*args, **kwargs)

    async def open(self) -> None:
        """Connect to the feeder and start relaying; frames of the page wait until then."""
        self.set_nodelay(True)
        self._tabs.add(self)
        try:
            address = await self._feeder.address()
            self._feed = await open_socket(
                address,
                may_write=self._gate.may_write,
                most_bytes=self._bounds["from_feeder"],
            )
        except DetError as error:
            self.log.warning("no socket for a page of det_jupyter: %s", error)
            self._close(_TRY_LATER, str(error))
            return
        except TimeoutError:  # the process is stopped or stuck, for all tabs
            problem = "the feeder does not answer; it is ended, and another is started"
            self.log.warning("%s", problem)
            self._close(_TRY_LATER, problem)
            await self._feeder.drop(address)
            return
        if self.ws_connection is None or self.ws_connection.is_closing():
            self.on_close()  # the page was closed meanwhile
        self._down = asyncio.create_task(self._relay_to_page(self._feed))

    async def on_message(self, message: str | bytes) -> None:
        """Relay a frame of the page; tornado reads the next one after that."""
        try:
            if refusal := self._gate.refusal(message):
                await self.write_message(refusal)
            elif self._feed is not None:
                await self._feed.write_message(message, binary=isinstance(message, bytes))
        except WebSocketClosedError:
            self._close(_FEEDER_ENDED, "the feeder has ended")

    async def _relay_to_page(self, feed: WebSocketClientConnection) -> None:
        try:
            while (message := await feed.read_message()) is not None:
                await self.write_message(message, binary=isinstance(message, bytes))
        except WebSocketClosedError:  # the page has closed its socket
            while await feed.read_message() is not None:
                pass  # tornado closes a socket only when all frames have been read
            return
        self._close(_FEEDER_ENDED, "the feeder has ended")

    def on_close(self) -> None:
        """Close the feeder's side."""
        self._tabs.discard(self)
        if self._feed is not None:
            self._feed.close()

    def _close(self, code: int, reason: str) -> None:
        self.close(code, reason.encode()[:_REASON_BYTES].decode("utf-8", "ignore"))
