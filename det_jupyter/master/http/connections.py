"""Bounds connections before they have said what they want. Knows bytes and time, nothing of HTTP.

uvicorn's `timeout_keep_alive` ends connections that rest between two requests; it has no limit for
those on which a request never comes whole. Without one any user of this computer can open more of
them than we may have files. So a connection *waits* until the head of a request is there:

    made ──► waits ──► head complete: guard.py looks at the token, and hangs up without it
              ▲                          │
              └── next request begins ◄──┘ answered

Waiting has a limit in time, in bytes, and in number: if one too many waits, the oldest is dropped.
A program of ours sends its request at once after it has connected, so it is never the oldest.
"""

from __future__ import annotations

import asyncio
import logging
import time

logger = logging.getLogger(__name__)

MOST_WAITING = 256
HEAD_S = 10.0
HEAD_BYTES = 64 * 1024
_COMPLAIN_S = 60.0


class Waiting:
    """The connections that wait, oldest first."""

    def __init__(self, *, most: int = MOST_WAITING, head_s: float = HEAD_S) -> None:
        self._most = most
        self._head_s = head_s
        self._timers: dict[asyncio.Transport, asyncio.TimerHandle] = {}
        self._num_dropped = 0
        self._complained_at = -_COMPLAIN_S

    @property
    def num_waiting(self) -> int:
        return len(self._timers)

    def add(self, transport: asyncio.Transport) -> None:
        """Have a connection wait; it may wait already."""
        if transport in self._timers:
            return
        if len(self._timers) >= self._most:
            self.drop(next(iter(self._timers)))
        loop = asyncio.get_running_loop()
        self._timers[transport] = loop.call_later(self._head_s, self.drop, transport)

    def remove(self, transport: asyncio.Transport) -> None:
        """Have a connection wait no more, if it does."""
        if timer := self._timers.pop(transport, None):
            timer.cancel()

    def drop(self, transport: asyncio.Transport) -> None:
        """Hang up."""
        self.remove(transport)
        transport.abort()
        self._num_dropped += 1
        if (now := time.monotonic()) - self._complained_at >= _COMPLAIN_S:
            self._complained_at = now
            logger.warning(
                "%d connections so far were closed because no whole request came",
                self._num_dropped,
            )


def bounded(parser: type[asyncio.Protocol], waiting: Waiting) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol of a connection (for h11 or httptools), with limits."""

    class Bounded(parser):  # type: ignore[misc, valid-type]  # known only when uvicorn is loaded
        _head_bytes = 0

        def connection_made(self, transport: asyncio.Transport) -> None:
            waiting.add(transport)
            super().connection_made(transport)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:  # it is answered
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
