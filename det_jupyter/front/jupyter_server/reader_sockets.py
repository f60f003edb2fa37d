"""Sockets to the reader: the process of the master that makes the documents of pages.

The master holds the reader's listening socket, and starts the reader when a connection waits. So a
connection is made at once, and its first request is answered when the reader runs. A start takes a
second, on a busy computer much longer; a reader that is stopped (SIGSTOP) or stuck never answers.
Both look the same from here, so what was seen before decides how long to wait:

    it has answered, and we have not seen its end     _ANSWER_S: it does not work any more
    anything else                                     _START_S: it may have been started just now

After this time the master is requested to end the reader, and starts another one for the waiting
connections. The new one has not answered yet, so it gets the longer time: even on a computer that
is too slow for the shorter one, readers are not ended one after the other.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import httpx
from tornado.httpclient import HTTPError, HTTPRequest
from tornado.simple_httpclient import HTTPTimeoutError
from tornado.websocket import WebSocketClientConnection, WebSocketError, websocket_connect

from det_jupyter.connection import API
from det_jupyter.contract.messages import MasterInfo
from det_jupyter.errors import DetError

logger = logging.getLogger(__name__)

_ANSWER_S, _START_S = 10.0, 60.0
_READER_IDLE_S = 300.0  # without a socket for so long, a reader ends by itself
_END_S = 5.0  # for the master's answer; it may be stopped as well


class ReaderSocket:
    """An open socket to the reader."""

    def __init__(self, connection: WebSocketClientConnection) -> None:
        self._connection = connection
        self.has_ended = False  # whether all frames were read

    async def read(self) -> str | bytes | None:
        """Return the next frame; None when the socket has ended."""
        message = await self._connection.read_message()
        self.has_ended = message is None
        return message

    async def write(self, message: str | bytes) -> None:
        """Send a frame.

        Raises:
            WebSocketClosedError: The socket has ended.
        """
        await self._connection.write_message(message, binary=isinstance(message, bytes))

    async def close(self) -> None:
        """Close the socket; this takes 5 s if the reader does not answer."""
        self._connection.close()
        while not self.has_ended:  # tornado closes a socket only when all frames have been read
            await self.read()


class ReaderSockets:
    """Opens sockets to the reader; lets the master end a reader that does not answer.

    Args:
        client: Sends requests to the master.
        most_bytes: The size of the largest frame; a socket ends at a larger one.
    """

    def __init__(self, client: httpx.AsyncClient, *, most_bytes: int) -> None:
        self._client = client
        self._most_bytes = most_bytes
        self._num_open = 0
        self._answered: MasterInfo | None = None  # the master whose reader has answered
        self._left_at = 0.0  # when the last socket was closed
        self._ended_at = 0.0  # when the master was requested to end a reader
        self._closing: set[asyncio.Task[None]] = set()
        # Connections that are still being opened although their page has gone.
        self._late: set[asyncio.Future[WebSocketClientConnection]] = set()

    @asynccontextmanager
    async def open(self, info: MasterInfo, *, may_write: bool) -> AsyncIterator[ReaderSocket]:
        """Open a socket for the `with` block.

        Args:
            info: The master of the reader.
            may_write: Whether the user may change experiments.

        Raises:
            DetError: The reader cannot be reached, or does not answer.
        """
        socket = await self._connect(info, may_write=may_write)
        self._answered = info
        self._num_open += 1
        try:
            yield socket
        finally:
            self._num_open -= 1
            self._left_at = time.monotonic()
            if socket.has_ended:
                self._answered = None
            self._close_later(socket.close())  # in its own task: this one may be cancelled

    async def close(self) -> None:
        """Wait until all sockets whose `with` block has ended are closed; the server stops."""
        for opening in list(self._late):
            opening.cancel()  # its reader starts, or does not answer
        if self._closing:
            await asyncio.wait(self._closing)

    async def _connect(self, info: MasterInfo, *, may_write: bool) -> ReaderSocket:
        began, limit_s = time.monotonic(), _ANSWER_S if self._runs(info) else _START_S
        request = HTTPRequest(
            f"ws{info.reader_url.removeprefix('http')}/socket",
            headers={
                "Authorization": f"Bearer {info.token}",
                "X-Det-May-Write": "1" if may_write else "0",
            },
            request_timeout=limit_s,
        )
        opening = asyncio.ensure_future(
            websocket_connect(request, max_message_size=self._most_bytes)
        )
        try:
            return ReaderSocket(await asyncio.shield(opening))
        except asyncio.CancelledError:
            self._late.add(opening)
            opening.add_done_callback(self._late.discard)
            self._close_later(_close_opened(opening))
            raise
        except HTTPTimeoutError:
            if began > self._ended_at:  # else it was another one that did not answer
                await self._end(info)
            raise DetError(
                "the reader does not answer; it is ended, and another is started"
            ) from None
        except (OSError, HTTPError, WebSocketError) as error:
            self._answered = None
            raise DetError(
                f"the reader cannot be reached ({error}); reader.log may have the reason"
            ) from None

    def _runs(self, info: MasterInfo) -> bool:
        """Return whether this master's reader runs, as far as we have seen."""
        is_young = time.monotonic() - self._left_at < _READER_IDLE_S
        return self._answered == info and (self._num_open > 0 or is_young)

    def _close_later(self, closing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(closing)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _end(self, info: MasterInfo) -> None:
        """Request from the master to end its reader."""
        self._answered, self._ended_at = None, time.monotonic()
        logger.warning("the reader of the master (process %d) does not answer", info.pid)
        try:
            await self._client.post(
                f"{info.url}{API}/reader/end",
                headers={"Authorization": f"Bearer {info.token}"},
                timeout=_END_S,
            )
        except httpx.HTTPError as error:
            logger.warning("the request to the master to end its reader failed: %s", error)


async def _close_opened(opening: asyncio.Future[WebSocketClientConnection]) -> None:
    """Close a socket when it opens, as its page has gone."""
    try:
        socket = ReaderSocket(await opening)
    except (OSError, HTTPError, WebSocketError):
        return
    await socket.close()
