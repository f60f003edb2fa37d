"""The reader's WebSocket server: `/socket` on the loopback interface, with the master's token.

Other users of the computer can connect to its port too, so connections are bounded: one waits
(`host/pending_connections.py`) until it has sent a request with the token. When no file
descriptor is left for another connection, the server pauses for a second: tornado would retry at
once and log each time.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import logging
import socket
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tornado.http1connection import HTTP1Connection
from tornado.httpserver import HTTPServer
from tornado.ioloop import IOLoop
from tornado.iostream import IOStream
from tornado.web import Application, RequestHandler
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from det_jupyter._version import __version__
from det_jupyter.contract.documents.codec import to_text
from det_jupyter.contract.host.daemons import raise_file_limit
from det_jupyter.contract.host.pending_connections import (
    HEAD_BYTES,
    MOST_PENDING,
    PendingConnections,
)
from det_jupyter.contract.messages.pages import PAGE_PROTOCOL, Hello, MasterState
from det_jupyter.reader.hub import Hub
from det_jupyter.reader.master_connection import MasterConnection
from det_jupyter.reader.replica import Replica
from det_jupyter.reader.tab import Questions, Tab

logger = logging.getLogger(__name__)

_MOST_FRAME_BYTES = 1 << 20  # frames from pages, whose requests are short
_PING_S = 30
_ACCEPTED_AT_ONCE = 32
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_S = 1.0
_COMPLAIN_S = 60.0


class ReaderState:
    """The state that all sockets share.

    Args:
        token: The master's token.
        path: The master's database.
    """

    def __init__(self, token: str, path: Path) -> None:
        self._token = token
        self.sockets: set[Socket] = set()
        self.is_used = asyncio.Event()  # set when a socket opens; cleared while waiting
        most_files, _ = raise_file_limit()
        self.waiting = PendingConnections(IOStream.close, most=min(MOST_PENDING, most_files // 4))
        self.instance = uuid.uuid4().hex
        connection = MasterConnection()
        self.replica = Replica(path)
        self.hub = Hub(self.replica, path, connection)
        self.questions = Questions(connection, self.hub.state)

    def is_authorized(self, authorization: str) -> bool:
        """Return whether an Authorization header contains the token."""
        return hmac.compare_digest(authorization.encode(), f"Bearer {self._token}".encode())

    def hello(self) -> str:
        """Return the first frame of a socket."""
        hello = Hello(
            instance=self.instance,
            version=__version__,
            protocol=PAGE_PROTOCOL,
            master=MasterState(state="running", version=__version__),
        )
        return to_text(**hello.model_dump())

    async def wait_until_idle(self, unused_s: float, idle_s: float) -> None:
        """Wait until no socket was open for `idle_s`; before the first socket, for `unused_s`."""
        await asyncio.sleep(unused_s)
        while self.sockets or self.is_used.is_set():
            self.is_used.clear()
            await asyncio.sleep(idle_s)

    def close(self) -> None:
        self.hub.close()
        self.questions.close()


class Socket(WebSocketHandler):
    """The socket of a tab, relayed by the server extension."""

    def initialize(self, reader: ReaderState) -> None:
        self._reader = reader
        self._tab: Tab | None = None

    def prepare(self) -> None:
        """Refuse requests without the token, and those of browsers, as these have an Origin."""
        is_authorized = self._reader.is_authorized(self.request.headers.get("Authorization", ""))
        if not is_authorized or "Origin" in self.request.headers:
            self.set_status(403)
            self.finish()
        elif isinstance(connection := self.request.connection, HTTP1Connection):
            self._reader.waiting.remove(connection.stream)

    def open(self, *args: str, **kwargs: str) -> None:
        self.set_nodelay(True)
        may_write = self.request.headers.get("X-Det-May-Write") == "1"
        reader = self._reader
        self._tab = Tab(reader.hub, reader.questions, self._send, may_write=may_write)
        self._send(reader.hello())
        reader.sockets.add(self)
        reader.is_used.set()

    def on_message(self, message: str | bytes) -> None:
        if self._tab is not None:
            self._tab.handle(message)

    def on_close(self) -> None:
        self._reader.sockets.discard(self)
        self._reader.is_used.set()
        if self._tab is not None:
            self._tab.close()

    def _send(self, frame: str | bytes) -> None:
        try:
            sent = self.write_message(frame, binary=isinstance(frame, bytes))
        except WebSocketClosedError:
            return
        sent.add_done_callback(
            lambda future: future.exception()
        )  # retrieves its exception: the socket was closed meanwhile


class NotFoundHandler(RequestHandler):
    """Answers all other paths with 404."""

    def prepare(self) -> None:
        self.set_status(404)
        self.finish()


def make_application(reader: ReaderState) -> Application:
    """Return the tornado application of the reader."""
    return Application(
        [("/socket", Socket, {"reader": reader})],
        default_handler_class=NotFoundHandler,
        websocket_max_message_size=_MOST_FRAME_BYTES,
        websocket_ping_interval=_PING_S,
        log_function=lambda handler: None,
    )


class BoundedServer(HTTPServer):
    """An HTTP server that bounds the number of connections that have sent no request yet.

    Args:
        waiting: The connections that have sent no request with the token; the oldest are dropped.
    """

    def initialize(self, app: Application, waiting: PendingConnections[IOStream]) -> None:  # type: ignore[override]
        """See HTTPServer."""
        super().initialize(app, max_header_size=HEAD_BYTES, max_body_size=HEAD_BYTES)
        self._waiting = waiting
        self._listeners: list[socket.socket] = []
        self._complained_at = -_COMPLAIN_S

    def add_sockets(self, sockets: Iterable[socket.socket]) -> None:
        """Start accepting connections."""
        for listener in sockets:
            self._listeners.append(listener)
            self._resume(listener)

    def stop(self) -> None:
        """Close the listening sockets."""
        while self._listeners:
            listener = self._listeners.pop()
            IOLoop.current().remove_handler(listener)
            listener.close()

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        """Serve a new connection; called by tornado."""
        self._waiting.add(stream)
        super().handle_stream(stream, address)

    def on_close(self, server_conn: Any) -> None:
        """Remove a closed connection from `waiting`; called by tornado."""
        self._waiting.remove(server_conn.stream)
        super().on_close(server_conn)

    def _resume(self, listener: socket.socket) -> None:
        if listener in self._listeners:
            IOLoop.current().add_handler(listener, self._accept, IOLoop.READ)

    def _accept(self, listener: socket.socket, events: int) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection, address = listener.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._pause(listener, error)
                return
            self._handle_connection(connection, address)

    def _pause(self, listener: socket.socket, error: OSError) -> None:
        loop = IOLoop.current()
        loop.remove_handler(listener)
        loop.call_later(_PAUSE_S, self._resume, listener)
        if (now := time.monotonic()) - self._complained_at >= _COMPLAIN_S:
            self._complained_at = now
            logger.warning("no more connections can be accepted for now: %s", error.strerror)
