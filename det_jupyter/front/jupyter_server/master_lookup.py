"""Finds, starts and watches the master for the Jupyter Server, without blocking its event loop.

Finding it reads files and inspects processes, which happens in daemon threads: a folder on a
network drive that hangs then blocks neither the event loop nor the server's exit, and at most one
thread waits for it.

A master that was killed has left its file behind and is started again, as by every program that
watches it (`connection.require_master`). One that was stopped is not. Whether the first page
starts one is a setting of the server's administrator.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from det_jupyter.connection import ensure_master, find_master, must_be_awake
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.tasks import in_thread
from det_jupyter.contract.messages import MasterInfo
from det_jupyter.contract.messages.pages import ABSENT, MasterState
from det_jupyter.errors import DetError, MasterUnreachable, ProtocolMismatch

logger = logging.getLogger(__name__)
T = TypeVar("T")

_FIND_TIMEOUT_S = 10.0
_WATCH_S = 0.5
_STARTING = MasterState(state="starting")


class _SharedCall(Generic[T]):
    """A blocking function, called in a thread; concurrent callers share one call's result."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._answer: asyncio.Future[T] | None = None

    @property
    def is_running(self) -> bool:
        return self._answer is not None and not self._answer.done()

    def begin(self) -> asyncio.Future[T]:
        """Call the function, unless a call is running; return the future result."""
        if self._answer is None or self._answer.done():
            self._answer = asyncio.ensure_future(in_thread(self._call))
            self._answer.add_done_callback(_retrieve_exception)
        return self._answer

    async def result(self) -> T:
        return await asyncio.shield(self.begin())


def _retrieve_exception(answer: asyncio.Future[T]) -> None:
    if not answer.cancelled():
        answer.exception()  # asyncio logs an exception that no caller retrieves


@dataclass(frozen=True, slots=True)
class _Found:
    """The result of a look for the master."""

    info: MasterInfo | None
    was_killed: bool  # none runs, and the file of the last one is there


class MasterLookup:
    """Finds and starts the user's master.

    Args:
        may_start: Whether the first look with `may_revive` starts a master if none runs.
    """

    def __init__(self, *, may_start: bool = False) -> None:
        self._finding = _SharedCall(_find_awake)
        self._starting = _SharedCall(self._ensure)
        self._may_start = may_start
        self._has_run = False
        self._start_problem = ""

    async def find(self) -> MasterInfo:
        """Return the running master's address.

        Raises:
            MasterUnreachable: None runs, or it cannot answer.
            ProtocolMismatch: One of another protocol version runs.
        """
        found = await self._found()
        if found.info is None:
            raise MasterUnreachable(ABSENT)
        return found.info

    async def start(self) -> MasterInfo:
        """Return the running master's address; start it if none runs."""
        return await self._starting.result()

    async def state(self) -> MasterState:
        """Return the `master` of the handshake (messages/pages.py)."""
        state, _ = await self.look()
        return state

    async def look(self, *, may_revive: bool = False) -> tuple[MasterState, MasterInfo | None]:
        """Return the state of the master, and its address if it runs.

        Args:
            may_revive: Whether to start one in the background if none runs and that is due: once
                for `may_start`, and whenever one was killed.
        """
        if self._starting.is_running:
            return _STARTING, None
        try:
            found = await self._found()
        except ProtocolMismatch as error:
            problem, command = str(error), error.command
            return MasterState(state="mismatch", problem=problem, command=command), None
        except MasterUnreachable as error:
            problem, command = str(error), error.command
            state = MasterState(
                state="silent" if command else "stopped", problem=problem, command=command
            )
            return state, None
        if found.info is not None:
            self._has_run, self._may_start, self._start_problem = True, False, ""
            return MasterState(state="running", version=found.info.version), found.info
        if may_revive and (self._may_start or self._is_to_be_revived(found)):
            self._may_start = False
            self._starting.begin()
        if self._starting.is_running:
            return _STARTING, None
        return MasterState(state="stopped", problem=self._start_problem), None

    def _is_to_be_revived(self, found: _Found) -> bool:
        # After a start that failed, no other one is tried.
        return found.was_killed and self._has_run and not self._start_problem

    async def _found(self) -> _Found:
        try:
            async with asyncio.timeout(_FIND_TIMEOUT_S):
                return await self._finding.result()
        except TimeoutError:
            raise MasterUnreachable(
                f"the folder of det_jupyter did not answer within {_FIND_TIMEOUT_S:g} s: "
                "its drive is slow or gone"
            ) from None

    def _ensure(self) -> MasterInfo:
        """Start the master; keep the reason if it does not start. Blocks."""
        try:
            return _with_readable_folder(ensure_master)
        except MasterUnreachable as error:
            self._start_problem = str(error)
            logger.warning("%s", error)
            raise


class MasterWatch:
    """Looks for the master while tabs are open, and notifies them when its state changes.

    There is one object for all tabs. `state` and `info` are those of the last look. Without tabs
    it does not look.
    """

    def __init__(self, lookup: MasterLookup) -> None:
        self._lookup = lookup
        self._listeners: set[Callable[[MasterState], None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._runs = asyncio.Event()
        self.state = _STARTING
        self.info: MasterInfo | None = None  # None: no master runs

    async def add(self, listener: Callable[[MasterState], None]) -> None:
        """Call `listener` at each change; return when `state` and `info` are current."""
        self._listeners.add(listener)
        if self._task is None:
            self._task = asyncio.create_task(self._watch())
        await self.look()

    def remove(self, listener: Callable[[MasterState], None]) -> None:
        """Stop calling `listener`."""
        self._listeners.discard(listener)
        if not self._listeners and self._task is not None:
            self._task.cancel()
            self._task = None

    async def running(self) -> MasterInfo:
        """Return the master's address as soon as one runs."""
        while self.info is None:
            await self._runs.wait()
        return self.info

    async def look(self) -> None:
        """Look now; start a master where that is due."""
        state, self.info = await self._lookup.look(may_revive=True)
        if self.info is None:
            self._runs.clear()
        else:
            self._runs.set()
        if state != self.state:
            self.state = state
            for listener in list(self._listeners):
                listener(state)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_S)
            try:
                await self.look()
            except Exception:  # the task's boundary: without it, tabs get no more states
                logger.exception("looking for the master")


def _find_awake() -> _Found:
    """Look for a master that answers. Blocks."""

    def find() -> _Found:
        info = find_master()
        return _Found(info, was_killed=info is None and paths.master_file().exists())

    found = _with_readable_folder(find)
    if found.info is not None:
        must_be_awake(found.info)
    return found


def _with_readable_folder(call: Callable[[], T]) -> T:
    """Call a function; raise MasterUnreachable if our folder cannot be read."""
    try:
        return call()
    except (MasterUnreachable, ProtocolMismatch):
        raise
    except (DetError, OSError) as error:
        raise MasterUnreachable(str(error)) from None
