"""Limits the connections that have not yet sent a request, for the servers of our programs.

Any user of this computer can connect to a port of ours. Without limits they could open more
connections than we may have files, and send no request. So a connection is *pending* until a whole
request with the token has arrived. A pending connection is closed after `head_s`, or when it is
the oldest of more than `most`. Our programs send their request as soon as they have connected, so
theirs is never the oldest. The server itself limits the bytes of a request.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Generic, TypeVar

logger = logging.getLogger(__name__)

MOST_PENDING = 256
HEAD_S = 10.0
HEAD_BYTES = 64 * 1024
_WARN_PERIOD_S = 60.0
C = TypeVar("C")


class PendingConnections(Generic[C]):
    """The pending connections, oldest first.

    Args:
        close: Closes a connection at once.
        most: How many may be pending.
        head_s: How long one may be pending, in seconds.
    """

    def __init__(
        self,
        close: Callable[[C], None],
        *,
        most: int = MOST_PENDING,
        head_s: float = HEAD_S,
    ) -> None:
        self._close = close
        self._most = most
        self._head_s = head_s
        self._timers: dict[C, asyncio.TimerHandle] = {}
        self._num_dropped = 0
        self._warned_at = -_WARN_PERIOD_S

    @property
    def num_pending(self) -> int:
        return len(self._timers)

    def add(self, connection: C) -> None:
        """Add a connection, unless it is pending already."""
        if connection in self._timers:
            return
        if len(self._timers) >= self._most:
            self.drop(next(iter(self._timers)))
        loop = asyncio.get_running_loop()
        self._timers[connection] = loop.call_later(self._head_s, self.drop, connection)

    def remove(self, connection: C) -> None:
        """Remove a connection that has sent its request, or was closed."""
        if timer := self._timers.pop(connection, None):
            timer.cancel()

    def drop(self, connection: C) -> None:
        """Close a connection."""
        self.remove(connection)
        self._close(connection)
        self._num_dropped += 1
        if (now := time.monotonic()) - self._warned_at >= _WARN_PERIOD_S:
            self._warned_at = now
            logger.warning(
                "%d connections so far were closed because no whole request came",
                self._num_dropped,
            )
