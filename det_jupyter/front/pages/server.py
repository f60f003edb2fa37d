"""The feeder's WebSocket server: `/socket` on the loopback, for those who have the token."""

from __future__ import annotations

import asyncio
import hmac
import logging
import uuid
from collections.abc import Callable

from tornado.http1connection import HTTP1Connection
from tornado.web import Application, RequestHandler
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from det_jupyter._version import __version__
from det_jupyter.contract.messages.pages import PAGE_PROTOCOL, Hello, MasterState
from det_jupyter.front.pages.codec import to_text
from det_jupyter.front.pages.hub import Hub
from det_jupyter.front.pages.listening import make_waiting
from det_jupyter.front.pages.master import MasterLine
from det_jupyter.front.pages.tab import Questions, Tab

logger = logging.getLogger(__name__)

_MOST_FRAME_BYTES = 1 << 20  # of a page: follows and questions are short
_LOOK_S = 0.5
_PING_S = 30


class Feeder:
    """What all sockets share."""

    def __init__(self, token: str, line: MasterLine) -> None:
        self._token = token
        self._line = line
        self.tabs: set[Callable[[str], None]] = set()  # are told what becomes of the master
        self.waiting = make_waiting()
        self.instance = uuid.uuid4().hex
        self.hub = Hub(line)
        self.questions = Questions(line)
        self.master = MasterState(state="starting")

    def is_known(self, authorization: str) -> bool:
        """Return whether a header has the token."""
        return hmac.compare_digest(authorization.encode(), f"Bearer {self._token}".encode())

    def hello(self) -> str:
        """Return the first frame of a socket."""
        hello = Hello(
            instance=self.instance,
            version=__version__,
            protocol=PAGE_PROTOCOL,
            master=self.master,
        )
        return to_text(**hello.model_dump())

    async def look(self) -> None:
        """Look for the master, and tell all tabs if its state is another one."""
        try:
            master = await asyncio.to_thread(self._line.look)
        except Exception:  # the boundary of the task: pages would not hear of the master again
            logger.exception("looking for the master")
            return
        if master != self.master:
            self.master = master
            frame = to_text(op="master", **master.model_dump())
            for send in list(self.tabs):
                send(frame)

    async def watch(self) -> None:
        """Look for the master, without end."""
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_S)

    def close(self) -> None:
        self.hub.close()
        self.questions.close()


class Socket(WebSocketHandler):
    """The socket of a tab, as the server extension passes it on."""

    def initialize(self, feeder: Feeder) -> None:
        self._feeder = feeder
        self._tab: Tab | None = None

    def prepare(self) -> None:
        """Refuse those without the token before anything else; browsers cannot send one."""
        is_known = self._feeder.is_known(self.request.headers.get("Authorization", ""))
        if not is_known or "Origin" in self.request.headers:
            self.set_status(403)
            self.finish()
        elif isinstance(connection := self.request.connection, HTTP1Connection):
            self._feeder.waiting.remove(connection.stream)

    def open(self, *args: str, **kwargs: str) -> None:
        self.set_nodelay(True)
        may_write = self.request.headers.get("X-Det-May-Write") == "1"
        feeder = self._feeder
        self._tab = Tab(feeder.hub, feeder.questions, self._send, may_write=may_write)
        self._send(feeder.hello())
        feeder.tabs.add(self._send)

    def on_message(self, message: str | bytes) -> None:
        if self._tab is not None:
            self._tab.take(message)

    def on_close(self) -> None:
        self._feeder.tabs.discard(self._send)
        if self._tab is not None:
            self._tab.close()

    def _send(self, frame: str | bytes) -> None:
        try:
            sent = self.write_message(frame, binary=isinstance(frame, bytes))
        except WebSocketClosedError:
            return
        sent.add_done_callback(lambda future: future.exception())  # it is closed meanwhile


class Absent(RequestHandler):
    """There is nothing else here."""

    def prepare(self) -> None:
        self.set_status(404)
        self.finish()


def make_application(feeder: Feeder) -> Application:
    return Application(
        [("/socket", Socket, {"feeder": feeder})],
        default_handler_class=Absent,
        websocket_max_message_size=_MOST_FRAME_BYTES,
        websocket_ping_interval=_PING_S,
        log_function=lambda handler: None,
    )
