"""Bounds connections before they have said what they want, for the servers of our programs.

Any user of this computer can connect to a port of ours. Without bounds they can open more
connections than we may have files, and send no request. So a connection *waits* until its request
is there, and with the token. Waiting has a limit in time and in number: if one too many waits, the
oldest is dropped. A program of ours sends its request at once after it has connected, so it is
never the oldest. The limit in bytes is the server's to check.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Generic, TypeVar

logger = logging.getLogger(__name__)

MOST_WAITING = 256
HEAD_S = 10.0
HEAD_BYTES = 64 * 1024
_COMPLAIN_S = 60.0
C = TypeVar("C")


class Waiting(Generic[C]):
    """The connections that wait, oldest first.

    Args:
        hang_up: Closes a connection at once.
    """

    def __init__(
        self,
        hang_up: Callable[[C], None],
        *,
        most: int = MOST_WAITING,
        head_s: float = HEAD_S,
    ) -> None:
        self._hang_up = hang_up
        self._most = most
        self._head_s = head_s
        self._timers: dict[C, asyncio.TimerHandle] = {}
        self._num_dropped = 0
        self._complained_at = -_COMPLAIN_S

    @property
    def num_waiting(self) -> int:
        return len(self._timers)

    def add(self, connection: C) -> None:
        """Have a connection wait; it may wait already."""
        if connection in self._timers:
            return
        if len(self._timers) >= self._most:
            self.drop(next(iter(self._timers)))
        loop = asyncio.get_running_loop()
        self._timers[connection] = loop.call_later(self._head_s, self.drop, connection)

    def remove(self, connection: C) -> None:
        """Have a connection wait no more, if it does."""
        if timer := self._timers.pop(connection, None):
            timer.cancel()

    def drop(self, connection: C) -> None:
        """Hang up."""
        self.remove(connection)
        self._hang_up(connection)
        self._num_dropped += 1
        if (now := time.monotonic()) - self._complained_at >= _COMPLAIN_S:
            self._complained_at = now
            logger.warning(
                "%d connections so far were closed because no whole request came",
                self._num_dropped,
            )
