"""A topic: versions of something that tabs follow, made when one of them can take it.

    mark (any thread)  -> the topic's task:  make     a new version, in a thread
    follow, ack        ->                    news     what a tab lacks, packed, in a thread
                                             send     to the tabs that can take more

Nothing is kept for a tab but the number of the version that it has, and those on their way to it.
So a slow tab gets fewer news and none that is old, and one that is hidden costs nothing: what
happens meanwhile is in the next version. Numbers are unique in this process and only grow. A topic
that a tab follows again after a pause knows by them what that tab has.
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

_COST_SHARE = 3  # of the time, making versions may take one part in so many
_AGAIN_S = 0.5  # after an error
_FRESH_S = 1.0  # a new tab gets no older version
_numbers = count(1)


def next_number() -> int:
    """Return the number of a version; for any thread."""
    return next(_numbers)


class Maker(Protocol):
    """What a topic is about. `make` and `news` are never called at the same time."""

    period_s: float  # between versions, at least
    beat_s: float | None  # a version is made after so long, though nothing is marked

    def begin(self, mark: Callable[[], None]) -> Callable[[], None]:
        """Call `mark`, from any thread, when there may be something new; return what ends that."""

    def make(self, version: int) -> bool:
        """Make this version; return whether there is something new in it.

        Raises:
            MasterUnreachable: It cannot be made now.
            DetError: It can never be made: the topic is over.
        """

    def news(self, since: int) -> Any:
        """Return what a tab lacks that has version `since`; 0: everything."""


class Following:
    """A tab that follows a topic, of which it has the version `since`."""

    def __init__(self, id: int, since: int, send: Send) -> None:
        self.id = id
        self.has = since
        self.is_over = False
        self._send = send
        self._unacked: deque[int] = deque()

    @property
    def is_free(self) -> bool:
        """Whether it can take more news."""
        return len(self._unacked) < MOST_UNACKED

    def ack(self, seq: int) -> None:
        """Note what has arrived."""
        while self._unacked and self._unacked[0] <= seq:
            self._unacked.popleft()

    def send_news(self, version: int, packed: Packed) -> None:
        """Send the news that bring it to a version."""
        self.has = version
        self._unacked.append(version)
        self._send(packed.frame(op="news", id=self.id, seq=version))

    def send_error(self, sentence: str) -> None:
        """Say that the topic is over, and why."""
        self.is_over = True
        self._send(to_text(op="error", id=self.id, error=sentence))


class Topic:
    """One thing that tabs follow; to be used in the loop's thread, but for `mark`."""

    def __init__(self, maker: Maker, in_thread: Any, on_over: Callable[[], None]) -> None:
        self._maker = maker
        self._in_thread = in_thread
        self._on_over = on_over  # called when there is nothing to follow any more
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
        if not self._first <= following.has <= self._version:  # it is of another topic or life
            following.has = 0
        if following.has == 0 and time.monotonic() > self._made_at + _FRESH_S:
            self._is_stale = True  # a page counts time on from its first state
        self._followings.add(following)
        if self._task is None:
            self._end_maker = self._maker.begin(self.mark)
            self._task = asyncio.create_task(self._run())
        self._awake.set()

    def remove(self, following: Following) -> None:
        """Let a tab follow it no more."""
        self._followings.discard(following)

    def wake(self) -> None:
        """See whether a tab can take more."""
        self._awake.set()

    def mark(self) -> None:
        """Note that there may be something new; for any thread."""
        if not self._is_stale:
            self._is_stale = True
            self._loop.call_soon_threadsafe(self._awake.set)

    def stop(self) -> None:
        """End it; nothing more is sent."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
            self._end_maker()

    async def _run(self) -> None:
        try:
            while True:
                await self._wait()
                await self._make_if_wanted()
                await self._send_news()
        except DetError as error:
            self._end(str(error))
        except Exception as error:  # the boundary to the browser
            logger.exception("a topic ends")
            self._end(error_text(error))

    async def _wait(self) -> None:
        """Wait until there is something to do."""
        now = time.monotonic()
        waits = []
        if self._is_stale and self._is_wanted():
            waits.append(self._not_before - now)
        if self._maker.beat_s is not None and self._is_wanted():
            waits.append(self._made_at + self._maker.beat_s - now)
        timeout_s = max(0.0, min(waits)) if waits else None
        try:
            async with asyncio.timeout(timeout_s):
                await self._awake.wait()
        except TimeoutError:
            beat_s = self._maker.beat_s
            if beat_s is not None and time.monotonic() >= self._made_at + beat_s:
                self._is_stale = True
        self._awake.clear()

    def _is_wanted(self) -> bool:
        return any(following.is_free for following in self._followings)

    async def _make_if_wanted(self) -> None:
        started = time.monotonic()
        if not (self._is_stale and self._is_wanted() and started >= self._not_before):
            return
        self._is_stale = False
        version = next_number()
        try:
            if await self._in_thread(lambda: self._maker.make(version)):
                self._version = version
        except MasterUnreachable as error:  # the page says so of the master
            logger.debug("a topic waits: %s", error)
            self._is_stale = True
            started += _AGAIN_S
        now = self._made_at = time.monotonic()
        pause_s = max(self._maker.period_s, _COST_SHARE * (now - started))
        self._not_before = max(now, started) + pause_s

    async def _send_news(self) -> None:
        behind = [f for f in self._followings if f.has < self._version and f.is_free]
        for since in {each.has for each in behind}:
            data = await self._in_thread(lambda since=since: pack(self._maker.news(since)))
            for each in behind:
                if each.has == since and each in self._followings and each.is_free:
                    each.send_news(self._version, data)

    def _end(self, sentence: str) -> None:
        self._task = None
        self._end_maker()
        for each in self._followings:
            each.send_error(sentence)
        self._followings.clear()
        self._on_over()
