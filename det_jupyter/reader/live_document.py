"""A live document: its versions, made when a tab can receive one, and the patches between them.

    mark_stale (any thread)  -> the document's task:  update   makes a version, in a thread
    add, ack                 ->                       send     a patch, or the whole, to the tabs
                                                               that can receive more

For each tab only two things are stored: the version that it has, and the versions that are not
acknowledged. So a slow tab gets fewer patches and never old ones, and a hidden tab costs nothing:
the next version contains all changes. The newest patches are kept, as a tab may lack several: they
are joined to one patch. Versions are unique in this process and only increase, so a tab can follow
a document again after a pause, from the version that it has.

A tab that begins to follow gets a version made after that moment, so that it contains changes that
the user has made before, for example by `activate()`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from det_jupyter.contract.documents.codec import Packed, pack
from det_jupyter.contract.documents.patches import Document, Operation, changes
from det_jupyter.contract.messages.pages import MOST_UNACKED
from det_jupyter.errors import DetError, MasterUnreachable
from det_jupyter.reader.frames import error_frame

logger = logging.getLogger(__name__)

Send = Callable[[str | bytes], None]

_COST_SHARE = 3  # after each version, a pause of this many times its cost follows
_RETRY_S = 0.5
# Kept bytes of patches: at most the size of the document, within these bounds.
_KEPT_BYTES = (4 * 1024, 128 * 1024)
_versions = count(1)


class Source(Protocol):
    """Makes the versions of a document; `make` is never called concurrently."""

    period_s: float  # least seconds between versions
    max_age_s: float | None  # most seconds between versions, even if nothing has changed

    def start(self, mark_stale: Callable[[], None]) -> Callable[[], None]:
        """Call `mark_stale` on each change, from any thread; return a function to stop it."""

    def make(self) -> Document | None:
        """Return the present document; None if it is not known yet.

        The returned object is never modified; parts that have not changed may be the same objects
        as in the version before.

        Raises:
            MasterUnreachable: The document cannot be made now; the caller retries.
            DetError: The document can never be made; the error is sent to the tabs.
        """


class Following:
    """One tab that follows a document; `has` is the tab's version, 0 for none."""

    def __init__(self, id: int, has: int, send: Send) -> None:
        self.id = id
        self.has = has
        self.is_over = False
        self._send = send
        self._unacked: deque[int] = deque()

    @property
    def is_free(self) -> bool:
        """Whether more may be sent before the next acknowledgement."""
        return len(self._unacked) < MOST_UNACKED

    def ack(self, version: int) -> None:
        """Record that the tab has received this version, and all earlier ones."""
        while self._unacked and self._unacked[0] <= version:
            self._unacked.popleft()

    def send_whole(self, version: int, packed: Packed) -> None:
        """Send the whole document."""
        self._send(packed.frame(op="document", id=self.id, version=version))
        self._note_sent(version)

    def send_patch(self, version: int, packed: Packed) -> None:
        """Send the changes since the version that the tab has."""
        self._send(packed.frame(op="patch", id=self.id, since=self.has, version=version))
        self._note_sent(version)

    def _note_sent(self, version: int) -> None:
        self.has = version
        self._unacked.append(version)

    def send_error(self, error: Exception) -> None:
        """Send the error with which the document ends."""
        self.is_over = True
        self._send(error_frame(self.id, error))


@dataclass(frozen=True, slots=True)
class _Patch:
    """The changes from version `since` to the next."""

    since: int
    operations: list[Operation]
    packed: Packed


class LiveDocument:
    """A document that tabs follow. Not thread-safe, except for `mark_stale`.

    Args:
        in_thread: Runs a function in a thread and awaits its result.
        on_over: Called when the document has ended with an error.
        catch_up: Reads all that the master has committed until now. Called in a thread before a
            version for a new tab is made.
    """

    def __init__(
        self,
        source: Source,
        in_thread: Any,
        on_over: Callable[[], None],
        catch_up: Callable[[], None],
    ) -> None:
        self._source = source
        self._catch_up = catch_up
        self._in_thread = in_thread
        self._on_over = on_over
        self._loop = asyncio.get_running_loop()
        self._document: Document | None = None
        self._version = 0
        self._patches: deque[_Patch] = deque()  # the newest ones, without gaps
        self._most_kept = _KEPT_BYTES[0]  # bytes; a tab that lacks more is sent the whole document
        self._is_stale = True
        self._made_at = self._not_before = 0.0  # on the monotonic clock
        self._cost_s = 0.0  # seconds that the last version took, without the wait for a thread
        self._awake = asyncio.Event()
        self._followings: set[Following] = set()
        # Tabs that wait for a version made since they began to follow.
        self._new: set[Following] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        return not self._followings

    def add(self, following: Following) -> None:
        """Send the document to a tab, then its changes, until `remove`."""
        if not self._has_patches_since(following.has):
            following.has = 0
        if following.has == 0:
            self._new.add(following)
            self._is_stale, self._not_before = True, 0.0
        self._followings.add(following)
        if self._task is None:
            self._stop_source = self._source.start(self.mark_stale)
            self._task = asyncio.create_task(self._run())
        self._awake.set()

    def remove(self, following: Following) -> None:
        """Send nothing more to this tab."""
        self._followings.discard(following)
        self._new.discard(following)

    def wake(self) -> None:
        """Look for tabs that can receive more, after an acknowledgement."""
        self._awake.set()

    def mark_stale(self) -> None:
        """Cause a new version to be made. Thread-safe."""
        if not self._is_stale:
            self._is_stale = True
            self._loop.call_soon_threadsafe(self._awake.set)

    def stop(self) -> None:
        """Stop without an error; no more is sent to tabs."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
            self._stop_source()

    async def _run(self) -> None:
        try:
            while True:
                await self._wait_for_work()
                await self._update_if_due()
                await self._send()
        except Exception as error:  # the boundary to the browser
            if not isinstance(error, DetError):
                logger.exception("a document cannot be made")
            self._end(error)

    async def _wait_for_work(self) -> None:
        """Wait until a version is due or a tab may have room for one."""
        now = time.monotonic()
        waits = []
        if self._is_stale and self._has_free_tab():
            waits.append(self._not_before - now)
        if self._source.max_age_s is not None and self._has_free_tab():
            waits.append(max(self._not_before, self._made_at + self._source.max_age_s) - now)
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
        self._is_stale, new = False, set(self._new)
        try:
            made = await self._in_thread(lambda: self._make(is_for_new=bool(new)))
            self._new -= new
            if made is not None:
                self._keep(*made)
        except MasterUnreachable as error:  # pages show that the master is not reachable
            logger.debug("a document waits: %s", error)
            self._is_stale = True
            started += _RETRY_S
        now = self._made_at = time.monotonic()
        pause_s = max(self._source.period_s, _COST_SHARE * self._cost_s)
        # Else a version is made as soon as the document is known.
        is_known = self._document is not None
        has_others = bool(self._new - new)  # tabs that were added meanwhile
        self._not_before = 0.0 if has_others else max(now, started) + pause_s * is_known

    def _make(self, *, is_for_new: bool) -> tuple[Document, _Patch | None] | None:
        """Return the new document and its patch; None if nothing has changed."""
        started = time.monotonic()
        try:
            if is_for_new:
                self._catch_up()
            document = self._source.make()
            if document is None:
                return None
            if self._document is None:
                return document, None
            operations = changes(self._document, document)
            if not operations:
                return None
            return document, _Patch(self._version, operations, pack(operations))
        finally:
            self._cost_s = time.monotonic() - started

    def _keep(self, document: Document, patch: _Patch | None) -> None:
        self._document, self._version = document, next(_versions)
        if patch is not None:
            self._patches.append(patch)
        num_bytes = sum(patch.packed.num_bytes for patch in self._patches)
        while num_bytes > self._most_kept:
            num_bytes -= self._patches.popleft().packed.num_bytes

    async def _send(self) -> None:
        waiting = self._followings - self._new
        behind = [f for f in waiting if f.has < self._version and f.is_free]
        for has in {each.has for each in behind}:
            is_known = self._has_patches_since(has)
            packed = await self._in_thread(
                lambda has=has, is_known=is_known: (
                    self._patch_since(has) if is_known else pack(self._document)
                )
            )
            if not is_known:
                least, most = _KEPT_BYTES
                self._most_kept = max(least, min(most, packed.num_bytes))
            for each in behind:
                if each.has == has and each in self._followings and each.is_free:
                    (each.send_patch if is_known else each.send_whole)(self._version, packed)

    def _has_patches_since(self, version: int) -> bool:
        return version == self._version or any(p.since == version for p in self._patches)

    def _patch_since(self, version: int) -> Packed:
        patches = [patch for patch in self._patches if patch.since >= version]
        if len(patches) == 1:
            return patches[0].packed
        return pack([operation for patch in patches for operation in patch.operations])

    def _end(self, error: Exception) -> None:
        self._task = None
        self._stop_source()
        for each in self._followings:
            each.send_error(error)
        self._followings.clear()
        self._new.clear()
        self._on_over()
