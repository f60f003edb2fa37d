"""The feeder's HTTP server, bounded: other users of the computer can connect to its port, too.

A connection waits (host/waiting.py) until it has brought a request with the token. If no file
can be opened for another one, none is accepted for a second: tornado would try again at once, and
log each time.
"""

from __future__ import annotations

import errno
import logging
import socket
import time
from collections.abc import Iterable
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.ioloop import IOLoop
from tornado.iostream import IOStream
from tornado.web import Application

from det_jupyter.contract.host.programs import raise_file_limit
from det_jupyter.contract.host.waiting import HEAD_BYTES, MOST_WAITING, Waiting

logger = logging.getLogger(__name__)

_ACCEPTED_AT_ONCE = 32
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_S = 1.0
_COMPLAIN_S = 60.0


def make_waiting() -> Waiting[IOStream]:
    """Return a place for connections to wait in, as large as this process has files for."""
    most_files, _ = raise_file_limit()
    return Waiting(IOStream.close, most=min(MOST_WAITING, most_files // 4))


class BoundedServer(HTTPServer):
    """Accepts connections, and drops those that only wait.

    Args:
        waiting: The connections that have not brought one with the token yet.
    """

    def initialize(self, app: Application, waiting: Waiting[IOStream]) -> None:  # type: ignore[override]
        """See HTTPServer."""
        super().initialize(app, max_header_size=HEAD_BYTES, max_body_size=HEAD_BYTES)
        self._waiting = waiting
        self._listeners: list[socket.socket] = []
        self._complained_at = -_COMPLAIN_S

    def add_sockets(self, sockets: Iterable[socket.socket]) -> None:
        """Begin to accept connections."""
        for listener in sockets:
            self._listeners.append(listener)
            self._resume(listener)

    def stop(self) -> None:
        """Accept no more."""
        while self._listeners:
            listener = self._listeners.pop()
            IOLoop.current().remove_handler(listener)
            listener.close()

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        """Serve a new connection."""
        self._waiting.add(stream)
        super().handle_stream(stream, address)

    def on_close(self, server_conn: Any) -> None:
        """Forget a connection that has ended."""
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
