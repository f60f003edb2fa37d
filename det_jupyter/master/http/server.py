"""Runs uvicorn without signal handlers, with bounded connections and a call at the start.

uvicorn's `timeout_keep_alive` closes connections that are idle between two requests; it has no
limit for those on which a request never arrives whole. So a connection counts as *waiting* until
the head of a request has arrived, and a bounded number may wait (host/pending_connections.py):

    accepted ──► waits ──► head complete: guard.py checks the token, and closes without it
                   ▲                          │
                   └── next request begins ◄──┘ answered
"""

from __future__ import annotations

import asyncio
import importlib.util
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import methodcaller
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from det_jupyter.contract.host.daemons import raise_file_limit
from det_jupyter.contract.host.pending_connections import (
    HEAD_BYTES,
    MOST_PENDING,
    PendingConnections,
)

# asyncio accepts up to `backlog` connections in one iteration of its loop. Each may wait for a
# head, and four such iterations run before the first connection can be closed.
_ACCEPTED_AT_ONCE = 32
_BACKLOG = 2048  # connections that the kernel queues until they are accepted
_FILES_PER_CONNECTION = 2  # file descriptors needed, at least, per accepted connection


class Server(uvicorn.Server):
    """Serves the master's application.

    Args:
        app: The application.
        on_started: Called once, when the server accepts connections.
        certificate: PEM file of the certificate to serve it over TLS with; None: plain HTTP.
        key: PEM file of the certificate's private key.
        on_connected: Called with each connection; over TLS, after its handshake.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        on_started: Callable[[], None],
        certificate: Path | None = None,
        key: Path | None = None,
        on_connected: Callable[[asyncio.Transport], None] = lambda _: None,
    ) -> None:
        # Chosen here: uvicorn would try more parsers than the two that are tested.
        parser = "httptools" if importlib.util.find_spec("httptools") else "h11"
        most_files, _ = raise_file_limit()
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http=parser,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=_ACCEPTED_AT_ONCE,
            limit_concurrency=most_files // _FILES_PER_CONNECTION,
            timeout_keep_alive=75,  # longer than our clients keep a connection
            timeout_graceful_shutdown=3,
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        config.load()
        if config.ssl is not None:
            config.ssl.minimum_version = ssl.TLSVersion.TLSv1_3
        most = min(MOST_PENDING, most_files // 4)
        waiting: PendingConnections[asyncio.Transport] = PendingConnections(
            methodcaller("abort"), most=most
        )
        config.http_protocol_class = with_bounds(config.http_protocol_class, waiting, on_connected)
        super().__init__(config)
        self._on_started = on_started

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            # Set here, because uvicorn has one number for backlog and limit.
            listener.listen(_BACKLOG)
        self._on_started()


def with_bounds(
    parser: type[asyncio.Protocol],
    waiting: PendingConnections[asyncio.Transport],
    on_connected: Callable[[asyncio.Transport], None] = lambda _: None,
) -> type[asyncio.Protocol]:
    """Return a subclass of uvicorn's connection protocol that closes slow or oversized heads.

    Args:
        parser: uvicorn's protocol class for h11 or httptools.
        waiting: The connections whose request head is incomplete.
        on_connected: Called with each connection.
    """

    class Bounded(parser):  # type: ignore[misc, valid-type]  # chosen when uvicorn is loaded
        _head_bytes = 0

        def connection_made(self, transport: asyncio.Transport) -> None:
            on_connected(transport)
            waiting.add(transport)
            super().connection_made(transport)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:  # being answered
                waiting.remove(self.transport)
                self._head_bytes = 0
                return
            waiting.add(self.transport)
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                waiting.drop(self.transport)

        def connection_lost(self, exc: Exception | None) -> None:
            waiting.remove(self.transport)
            super().connection_lost(exc)

    return Bounded
