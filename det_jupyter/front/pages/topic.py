"""A topic: numbered versions of a state that tabs follow, made when a tab can receive one.

    mark_stale (any thread)  -> the topic's task:  update   makes a version, in a thread
    add, ack                 ->                    news     what a tab lacks, encoded, in a thread
                                                   send     to the tabs that can receive more

Stored per tab are only the number of the version it has, and the numbers of unacknowledged news.
So a slow tab gets fewer news and never old ones, and a hidden tab costs nothing: what happens
meanwhile is in the next version. Version numbers are unique in this process and only increase, so
that a tab can follow a topic again after a pause, with the number of the version it has.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any, Protocol

from det_jupyter.contract.messages.pages import MOST_UNACKED
from det_jupyter.contract.values.text import error_text
from det_jupyter.errors import DetError, MasterUnreachable
from det_jupyter.front.pages.codec import Packed, pack, to_text

logger = logging.getLogger(__name__)

Send = Callable[[str | bytes], None]

_COST_SHARE = 3  # a pause after each version is at least so many times its cost
_RETRY_S = 0.5
_FRESH_S = 1.0  # for a new tab, an older version is made anew
_numbers = count(1)


def next_number() -> int:
    """Return a new version number. Thread-safe."""
    return next(_numbers)


class Source(Protocol):
    """Makes the versions of a topic. `update` and `news` are never called concurrently."""

    period_s: float  # least time between versions
    max_age_s: float | None  # after which a version is made although nothing has changed

    def start(self, mark_stale: Callable[[], None]) -> Callable[[], None]:
        """Call `mark_stale`, from any thread, on each change; return a function that ends that."""

    def update(self, version: int) -> bool:
        """Make this version; return whether it differs from the one before.

        Raises:
            MasterUnreachable: It cannot be made now; the topic retries.
            DetError: It can never be made: the topic ends.
        """

    def news(self, since: int) -> Any:
        """Return the changes since version `since`; the whole state for 0."""


class Following:
    """One tab's subscription to a topic, of which it has the version `since`."""

    def __init__(self, id: int, since: int, send: Send) -> None:
        self.id = id
        self.has = since
        self.is_over = False
        self._send = send
        self._unacked: deque[int] = deque()

    @property
    def is_free(self) -> bool:
        """Whether more news may be sent before another acknowledgement."""
        return len(self._unacked) < MOST_UNACKED

    def ack(self, seq: int) -> None:
        """Record that news up to number `seq` have been received."""
        while self._unacked and self._unacked[0] <= seq:
            self._unacked.popleft()

    def send_news(self, version: int, packed: Packed) -> None:
        """Send news, after which the tab has this version."""
        self.has = version
        self._unacked.append(version)
        self._send(packed.frame(op="news", id=self.id, seq=version))

    def send_error(self, sentence: str) -> None:
        """Send the error with which the topic ends."""
        self.is_over = True
        self._send(to_text(op="error", id=self.id, error=sentence))


class Topic:
    """A topic. Not thread-safe, except for `mark_stale`.

    Args:
        in_thread: Runs a function in a thread and awaits its result.
        on_over: Called when the topic has ended with an error.
    """

    def __init__(self, source: Source, in_thread: Any, on_over: Callable[[], None]) -> None:
        self._source = source
        self._in_thread = in_thread
        self._on_over = on_over
        self._loop = asyncio.get_running_loop()
        self._first = next_number()
        self._version = 0
        self._is_stale = True
        self._made_at = self._not_before = 0.0  # on the monotonic clock
        self._awake = asyncio.Event()
        self._followings: set[Following] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        return not self._followings

    def add(self, following: Following) -> None:
        # `has` may be a version of another topic or of an earlier process.
        if not self._first <= following.has <= self._version:
            following.has = 0
        if following.has == 0 and time.monotonic() > self._made_at + _FRESH_S:
            self._is_stale = True  # a page extrapolates times from its first state
        self._followings.add(following)
        if self._task is None:
            self._stop_source = self._source.start(self.mark_stale)
            self._task = asyncio.create_task(self._run())
        self._awake.set()

    def remove(self, following: Following) -> None:
        """Remove a tab's subscription."""
        self._followings.discard(following)

    def wake(self) -> None:
        """Send news to tabs that have acknowledged some."""
        self._awake.set()

    def mark_stale(self) -> None:
        """Have a new version made. Thread-safe."""
        if not self._is_stale:
            self._is_stale = True
            self._loop.call_soon_threadsafe(self._awake.set)

    def stop(self) -> None:
        """Stop without an error; nothing more is sent."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
            self._stop_source()

    async def _run(self) -> None:
        try:
            while True:
                await self._wait_for_work()
                await self._update_if_due()
                await self._send_news()
        except DetError as error:
            self._end(str(error))
        except Exception as error:  # the boundary to the browser
            logger.exception("a topic has failed")
            self._end(error_text(error))

    async def _wait_for_work(self) -> None:
        """Wait until a version is due or a tab may have room for news."""
        now = time.monotonic()
        waits = []
        if self._is_stale and self._has_free_tab():
            waits.append(self._not_before - now)
        if self._source.max_age_s is not None and self._has_free_tab():
            waits.append(self._made_at + self._source.max_age_s - now)
        timeout_s = min(waits) if waits else None
        try:
            async with asyncio.timeout(timeout_s):
                await self._awake.wait()
        except TimeoutError:
            max_age_s = self._source.max_age_s
            if max_age_s is not None and time.monotonic() >= self._made_at + max_age_s:
                self._is_stale = True
        self._awake.clear()

    def _has_free_tab(self) -> bool:
        return any(following.is_free for following in self._followings)

    async def _update_if_due(self) -> None:
        started = time.monotonic()
        if not (self._is_stale and self._has_free_tab() and started >= self._not_before):
            return
        self._is_stale = False
        version = next_number()
        try:
            if await self._in_thread(lambda: self._source.update(version)):
                self._version = version
        except MasterUnreachable as error:  # pages show the master's state
            logger.debug("a topic waits: %s", error)
            self._is_stale = True
            started += _RETRY_S
        now = self._made_at = time.monotonic()
        pause_s = max(self._source.period_s, _COST_SHARE * (now - started))
        self._not_before = max(now, started) + pause_s

    async def _send_news(self) -> None:
        behind = [f for f in self._followings if f.has < self._version and f.is_free]
        for since in {each.has for each in behind}:
            data = await self._in_thread(lambda since=since: pack(self._source.news(since)))
            for each in behind:
                if each.has == since and each in self._followings and each.is_free:
                    each.send_news(self._version, data)

    def _end(self, sentence: str) -> None:
        self._task = None
        self._stop_source()
        for each in self._followings:
            each.send_error(sentence)
        self._followings.clear()
        self._on_over()
