"""uvicorn as the master needs it: without signal handlers, and with a call when it listens."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import methodcaller

import uvicorn

from det_jupyter.contract.host.daemons import raise_file_limit
from det_jupyter.contract.host.pending_connections import MOST_WAITING, Waiting
from det_jupyter.master.http.connections import bounded
from det_jupyter.master.http.guard import Guard

_ACCEPTED_AT_ONCE = 32  # four such turns are begun before the first of them can be dropped
_BACKLOG = 2048  # connections that the system makes for us until we come to them
_FILES_PER_CONNECTION = 2  # file descriptors needed, at least, per accepted connection


class Server(uvicorn.Server):
    def __init__(self, app: Guard, *, on_started: Callable[[], None]) -> None:
        # Chosen by hand: uvicorn would try more parsers than the two that we test.
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
        )
        config.load()
        most = min(MOST_WAITING, most_files // 4)
        waiting: Waiting[asyncio.Transport] = Waiting(methodcaller("abort"), most=most)
        config.http_protocol_class = bounded(config.http_protocol_class, waiting)
        super().__init__(config)
        self._on_started = on_started

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(_BACKLOG)  # uvicorn has but one number for both
        self._on_started()
