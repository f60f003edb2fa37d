"""Following the feed: everything after a number from the store, then what comes, as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from det_jupyter.master.service.store import Store

_PAGE = 500  # items read at a time; other requests get their turn in between


class Bell:
    """Wakes whoever waits for the next commit."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self.is_closed = False

    def ring(self) -> None:
        """Wake all who wait."""
        self._rung.set()
        self._rung = asyncio.Event()

    def close(self) -> None:
        """Wake all who wait, for the last time."""
        self.is_closed = True
        self.ring()

    async def wait(self, timeout_s: float) -> bool:
        """Wait for the next ring; return False if there was none in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                return await self._rung.wait()
        return False


async def follow(
    store: Store,
    bell: Bell,
    *,
    after: int,
    experiment_id: int | None,
    is_endless: bool,
    heartbeat_s: float,
) -> AsyncIterator[bytes]:
    """Yield feed items after that number as JSON lines; an empty line is a sign of life.

    Args:
        store: Where they are.
        bell: Rings when there are more.
        after: Number of the last item that the follower knows.
        experiment_id: Only of this one.
        is_endless: Go on until the bell is closed; else end with the last item there is.
        heartbeat_s: The longest silence.
    """
    while not bell.is_closed:
        # Nothing is awaited between a look that finds nothing and the wait, so no ring is missed.
        if items := store.feed(after, experiment_id, _PAGE):
            yield b"".join(item.model_dump_json().encode() + b"\n" for item in items)
            after = items[-1].seq
        elif not is_endless:
            return
        elif not await bell.wait(heartbeat_s):
            yield b"\n"
