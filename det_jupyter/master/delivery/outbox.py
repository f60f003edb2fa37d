"""The outbox: sends items to each place one after the other, and to different places in parallel.

    new items ──► their place is due ──► an attempt ──► they arrived
                         ▲                  └──► it failed: the place is due again later
                         └──────────────────────────┘

The rest of the master never waits for a place. At most eight places of a channel are sent to at a
time. If more are due, they take turns of a minute; the one whose last turn is longest ago is next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from det_jupyter.contract.host.disk_space import is_no_room
from det_jupyter.master.service.service import Service

logger = logging.getLogger(__name__)

_AFTER_ERROR_S = 30.0
_MOST_AT_ONCE = 8
_TURN_S = 60.0
_FORGOTTEN_S = 3600.0  # after this time without a turn, a place counts as new
Place = TypeVar("Place", bound=Hashable)


class Channel(Protocol[Place]):
    """A kind of delivery, such as alerts."""

    async def find(self) -> None:
        """Find new items, and the places that they go to."""

    def due_at(self) -> Mapping[Place, float]:
        """Return the places with waiting items, and when each place is due, in UTC seconds."""

    async def send(self, place: Place) -> None:
        """Send the items that are due at a place, as long as it has its turn (`Outbox.has_turn`).

        Failures of the place are stored, so that it is due later; other errors are raised.
        """


class Outbox(Generic[Place]):
    """Sends the items of one channel.

    Args:
        clock: Returns the present time, UTC seconds.
        period_s: Seconds between two searches for new items.
        wake: Set when there is a new item, for channels that can signal that.
        last_s: Seconds for attempts under way when the master exits.

    Attributes:
        sending: The attempts under way.
    """

    def __init__(
        self,
        channel: Channel[Place],
        service: Service,
        *,
        clock: Callable[[], float],
        period_s: float,
        wake: asyncio.Event | None = None,
        last_s: float = 0.0,
    ) -> None:
        self._channel = channel
        self._service = service
        self._clock = clock
        self._period_s = period_s
        self._wake = wake or asyncio.Event()
        self._last_s = last_s
        self._began_at: dict[Place, float] = {}  # by place: the beginning of its last turn
        self.sending: dict[Place, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Send the items that are due, until cancelled; attempts under way get a moment to end."""
        try:
            while True:
                self._wake.clear()
                try:
                    pause_s = await self.start_due()
                except Exception:  # a full disk, for example; it is tried again
                    logger.exception("what waits to be sent could not be read")
                    pause_s = _AFTER_ERROR_S
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._wake.wait()
        finally:
            await self.close()

    async def close(self) -> None:
        """End the attempts under way."""
        tasks = list(self.sending.values())
        if tasks:
            await asyncio.wait(tasks, timeout=self._last_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def start_due(self) -> float:
        """Find new items, and begin to send to the places that are due.

        Returns:
            Seconds until another place is due, or until the next search.
        """
        await self._channel.find()
        due_at, now = self._channel.due_at(), self._clock()
        recent = [(place, at) for place, at in self._began_at.items() if now - at < _FORGOTTEN_S]
        self._began_at = dict(recent)
        for place in self._due(due_at)[: _MOST_AT_ONCE - len(self.sending)]:
            self._began_at[place] = now
            self.sending[place] = asyncio.create_task(self._send(place))
        return min([self._period_s, *(at - now for at in due_at.values() if at > now)])

    def _due(self, due_at: Mapping[Place, float]) -> list[Place]:
        """Return the places that wait for their turn, the next one first."""
        now = self._clock()
        due = [each for each, at in due_at.items() if at <= now and each not in self.sending]
        return sorted(due, key=lambda place: self._began_at.get(place, 0.0))

    def has_turn(self, place: Place) -> bool:
        """Return whether more may be sent to a place: its turn lasts, or no other place waits."""
        if len(self.sending) < _MOST_AT_ONCE:
            return True
        is_over = self._clock() - self._began_at.get(place, 0.0) > _TURN_S
        return not (is_over and self._due(self._channel.due_at()))

    async def _send(self, place: Place) -> None:
        try:
            await self._channel.send(place)
        except Exception as error:  # a full disk, for example; it is tried again
            if is_no_room(error):
                self._service.reserve.give_back()
            logger.exception("it could not be sent, or that could not be stored")
            await asyncio.sleep(_AFTER_ERROR_S)
        finally:
            del self.sending[place]
            self._wake.set()
