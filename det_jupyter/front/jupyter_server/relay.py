"""Relays the frames of a tab's socket to the reader and back, with backpressure.

Each direction reads a frame only after it has written the one before. So nothing accumulates here
for a page that reads slowly: the reader waits for it and sends fewer versions.

    no master runs   the relay itself sends `hello`, and the master's state; it answers pings,
        |            answers questions with an error, and drops other frames
        v
    a master runs    it connects to the reader; frames of the page wait
        |
        v
    connected        the reader's `hello` is relayed, also to a page that got one before: a page
        |            then follows its documents again
        v
    reader ended     the page's socket is closed, and the page opens another

All states of the master except `running` are sent from here (master_lookup.py): the reader ends
with its master, and cannot report that the master does not answer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jupyter_server.auth.decorator import ws_authenticated
from jupyter_server.base.websocket import WebSocketMixin
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from det_jupyter._version import __version__
from det_jupyter.contract.documents.codec import to_text
from det_jupyter.contract.messages import MasterInfo
from det_jupyter.contract.messages.pages import ABSENT, PAGE_PROTOCOL, Hello, MasterState
from det_jupyter.errors import DetError
from det_jupyter.front.jupyter_server.handlers import RefusingHandler, allowed_actions, require
from det_jupyter.front.jupyter_server.master_lookup import MasterWatch
from det_jupyter.front.jupyter_server.reader_sockets import ReaderSocket, ReaderSockets
from det_jupyter.front.jupyter_server.routes import ACTIONS, PREFIX

_GOING_AWAY, _FAILED, _READER_ENDED, _TRY_LATER = 1001, 1011, 1012, 1013
_REASON_BYTES = 120  # at most 123 fit into a close frame
# The resources that a user must be allowed to read, by document and by type of question.
_DOCUMENTS = {"cluster": "cluster", "usage": "cluster"}  # others: experiments
_QUESTIONS = {"logs": "logs", "stacks": "kernels"}  # series of an agent: cluster


class ReadGate:
    """Refuses frames for resources that the user may not read.

    Changes are refused by the reader. Frames of users who may do everything, which is usual, are
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
            return ""  # the reader answers with the problem
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
    """The tab's side of a relayed socket; it opens the reader's side."""

    auth_resource = f"{PREFIX}experiments"

    def initialize(
        self,
        watch: MasterWatch,
        readers: ReaderSockets,
        tabs: set[Relay],
        on_connected: Callable[[], None],
        most_bytes: int,
    ) -> None:
        """Take the collaborators.

        `on_connected` is called when the tab is connected to a reader; `most_bytes` is the size of
        the largest frame from the page.
        """
        self._watch, self._readers, self._tabs = watch, readers, tabs
        self._on_connected, self._most_bytes = on_connected, most_bytes
        self._reader: ReaderSocket | None = None
        self._is_greeted = False
        self._may_read = asyncio.Event()  # not set while it connects: frames of the page wait
        self._serving: asyncio.Task[None] | None = None

    @property
    def max_message_size(self) -> int:
        """The most bytes of a frame from the page."""
        return self._most_bytes

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

    def open(self) -> None:
        """Start serving the page."""
        self.set_nodelay(True)
        self._tabs.add(self)
        self._serving = asyncio.create_task(self._serve())

    async def on_message(self, message: str | bytes) -> None:
        """Relay a frame of the page, or answer it; tornado reads the next one after that."""
        try:
            if refusal := self._gate.refusal(message):
                await self.write_message(refusal)
                return
            if self._reader is None and self._is_greeted and _parsed(message).get("op") == "ping":
                await self.write_message(to_text(op="pong"))  # whatever else waits
                return
            await self._may_read.wait()
            if self._reader is None:
                await self._answer_alone(_parsed(message))
            else:
                await self._reader.write(message)
        except WebSocketClosedError:
            self._close(_READER_ENDED, "the reader has ended")

    def on_close(self) -> None:
        """End serving, and with it the reader's side."""
        if self._serving is not None:
            self._serving.cancel()

    async def end(self) -> None:
        """Close both sides, as the server stops."""
        self._close(_GOING_AWAY, "the Jupyter server is stopping")
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait([self._serving])

    async def _serve(self) -> None:
        """Serve the page until it or the reader has ended."""
        try:
            await self._watch.add(self._tell)
            while not await self._try_reader(await self._running_master()):
                pass
        except WebSocketClosedError:  # the page has closed its socket
            pass
        except Exception:  # the boundary to the browser
            self.log.exception("a page of det_jupyter")
            self._close(_FAILED, "the log of the Jupyter server has the reason")
        finally:
            self._reader = None
            self._may_read.set()
            self._watch.remove(self._tell)
            self._tabs.discard(self)

    async def _running_master(self) -> MasterInfo:
        """Return the master's address; while none runs, serve the page without a reader."""
        if self._watch.info is None:
            if not self._is_greeted:
                self._is_greeted = True
                hello = Hello(
                    instance="",
                    version=__version__,
                    protocol=PAGE_PROTOCOL,
                    master=self._watch.state,
                )
                await self.write_message(to_text(**hello.model_dump()))
            self._may_read.set()
        info = await self._watch.running()
        self._may_read.clear()
        return info

    async def _try_reader(self, info: MasterInfo) -> bool:
        """Relay to the reader of this master; return False if the master has changed meanwhile."""
        try:
            async with self._readers.open(info, may_write=self._gate.may_write) as reader:
                await self._relay_to_page(reader)
        except DetError as error:
            await self._watch.look()  # it may have ended a moment ago
            if self._watch.info != info:
                return False
            self.log.warning("no socket for a page of det_jupyter: %s", error)
            self._close(_TRY_LATER, str(error))
        else:
            self._close(_READER_ENDED, "the reader has ended")
        return True

    async def _relay_to_page(self, reader: ReaderSocket) -> None:
        while (message := await reader.read()) is not None:
            await self.write_message(message, binary=isinstance(message, bytes))
            if self._reader is None:  # that was the `hello`
                self._reader, self._is_greeted = reader, True
                self._may_read.set()
                if self._watch.info is None:  # the `hello` has shown that the master runs
                    self._tell(self._watch.state)
                self._on_connected()

    def _tell(self, master: MasterState) -> None:
        """Send the page the master's state, unless it runs: the reader's `hello` shows that."""
        if self._is_greeted and (self._reader is not None or master.state != "running"):
            try:
                sent = self.write_message(to_text(op="master", **master.model_dump()))
            except WebSocketClosedError:
                return
            sent.add_done_callback(
                lambda future: future.exception()
            )  # retrieves it: the socket was closed meanwhile

    async def _answer_alone(self, frame: Mapping[str, Any]) -> None:
        """Answer a question without a reader; a page repeats its other frames later."""
        if frame.get("op") == "ask":
            error = self._watch.state.problem or ABSENT
            await self.write_message(to_text(op="answer", id=frame.get("id"), error=error))

    def _close(self, code: int, reason: str) -> None:
        self.close(code, reason.encode()[:_REASON_BYTES].decode("utf-8", "ignore"))


def _parsed(message: str | bytes) -> dict[str, Any]:
    """Return a frame; an empty one if it is invalid."""
    try:
        frame = json.loads(message)
    except (ValueError, RecursionError):
        return {}
    return frame if isinstance(frame, dict) else {}
