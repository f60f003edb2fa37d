"""The socket of a tab: frames go to the feeder and back, one by one, as fast as the slower side.

Each direction reads a frame only after it has written the one before: a page that reads slowly is
sent fewer news by the feeder, which waits for it, and nothing is kept for it here.
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
from det_jupyter.front.jupyter_server.feeder import Address, Feeder
from det_jupyter.front.jupyter_server.handlers import Refusing, may_of, require
from det_jupyter.front.jupyter_server.routes import ACTIONS, PREFIX

_FEEDER_ENDED, _TRY_LATER = 1012, 1013
_CONNECT_S = 10.0
_REASON_BYTES = 120  # of at most 123 in a frame that closes
# What the authorizer is asked to let a user read, for topics and questions of a page.
_TOPICS = {"cluster": "cluster", "usage": "cluster"}  # others: experiments
_QUESTIONS = {"logs": "logs", "stacks": "kernels"}  # and the series of an agent: cluster


async def open_socket(
    address: Address, *, may_write: bool, most_bytes: int
) -> WebSocketClientConnection:
    """Return a socket to the feeder.

    Raises:
        TimeoutError: It does not answer.
        DetError: It cannot be reached.
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


class Gate:
    """What a page may say to the feeder, where the authorizer lets its user see only a part.

    The feeder refuses changes by itself; here, what a user may not even see is not followed. Users
    who may do everything, which is usual, pass without their frames being read.
    """

    def __init__(self, may: Mapping[str, Sequence[str]]) -> None:
        self._may = may
        self._is_open = all(len(actions) == len(ACTIONS) for actions in may.values())

    @property
    def may_write(self) -> bool:
        """Whether the user may change experiments."""
        return "write" in self._may["experiments"]

    def refusal(self, message: str | bytes) -> str:
        """Return the frame to answer with instead of passing this one on; "" if it may pass."""
        if self._is_open:
            return ""
        try:
            frame = json.loads(message)
            resource, op = _resource_of(frame), frame["op"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return ""  # the feeder says what is wrong with it
        if "read" in self._may[resource]:
            return ""
        problem = f"you are not allowed to read {PREFIX}{resource} on this Jupyter server"
        answer = {"op": "answer" if op == "ask" else "error", "id": frame.get("id")}
        return json.dumps({**answer, "error": problem})


def _resource_of(frame: dict[str, object]) -> str:
    if frame["op"] == "follow":
        return _TOPICS.get(str(frame.get("topic")), "experiments")
    question = frame.get("question")
    if not isinstance(question, dict):
        return "experiments"
    if question.get("type") == "series" and question.get("agent_id") is not None:
        return "cluster"
    return _QUESTIONS.get(str(question.get("type")), "experiments")


class Relay(WebSocketMixin, WebSocketHandler, Refusing):
    """A socket between a tab and the feeder."""

    auth_resource = f"{PREFIX}experiments"

    def initialize(self, feeder: Feeder, tabs: set[Relay], bounds: dict[str, int]) -> None:
        """Take the collaborators; `bounds` has the most bytes of a frame by its origin."""
        self._feeder, self._tabs, self._bounds = feeder, tabs, bounds
        self._feed: WebSocketClientConnection | None = None
        self._down: asyncio.Task[None] | None = None

    @property
    def max_message_size(self) -> int:
        """The most bytes of a frame from the page."""
        return self._bounds["from_page"]

    @property
    def ping_interval(self) -> float:
        """Seconds between pings, which tornado sends and waits for: the mixin's are not used."""
        return float(super().ping_interval) / 1000

    @property
    def ping_timeout(self) -> float:
        """Seconds after which a page that does not answer a ping is gone."""
        return self.ping_interval

    @ws_authenticated
    async def get(self, *args: Any, **kwargs: Any) -> None:
        """Open the socket, if this user may see experiments."""
        await require(self, "read", "experiments")
        self._gate = Gate(await may_of(self))
        await super().get(*args, **kwargs)

    async def open(self) -> None:
        """Begin to pass frames on; those of the page wait until then."""
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
        except TimeoutError:  # stopped, or stuck for good: no tab has anything of it
            problem = "the feeder does not answer; it is ended, and another is started"
            self.log.warning("%s", problem)
            self._close(_TRY_LATER, problem)
            await self._feeder.drop(address)
            return
        if self.ws_connection is None or self.ws_connection.is_closing():
            self.on_close()  # the page has left meanwhile
        self._down = asyncio.create_task(self._pass_down(self._feed))

    async def on_message(self, message: str | bytes) -> None:
        """Pass a frame of the page on; the next one is read after that."""
        try:
            if refusal := self._gate.refusal(message):
                await self.write_message(refusal)
            elif self._feed is not None:
                await self._feed.write_message(message, binary=isinstance(message, bytes))
        except WebSocketClosedError:
            self._close(_FEEDER_ENDED, "the feeder has ended")

    async def _pass_down(self, feed: WebSocketClientConnection) -> None:
        try:
            while (message := await feed.read_message()) is not None:
                await self.write_message(message, binary=isinstance(message, bytes))
        except WebSocketClosedError:  # of the page
            while await feed.read_message() is not None:
                pass  # what is on its way: tornado closes a socket when all of it is read
            return
        self._close(_FEEDER_ENDED, "the feeder has ended")

    def on_close(self) -> None:
        """End the other half."""
        self._tabs.discard(self)
        if self._feed is not None:
            self._feed.close()

    def _close(self, code: int, reason: str) -> None:
        self.close(code, reason.encode()[:_REASON_BYTES].decode("utf-8", "ignore"))
