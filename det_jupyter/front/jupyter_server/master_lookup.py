"""Finds and starts the master for the Jupyter Server, without blocking its event loop.

Finding it reads files and inspects processes, which happens in daemon threads: a folder on a
network drive that hangs then blocks neither the event loop nor the server's exit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from det_jupyter.connection import ensure_master, find_master, must_be_awake
from det_jupyter.contract.host.tasks import in_thread
from det_jupyter.contract.messages import MasterInfo
from det_jupyter.contract.messages.pages import ABSENT, MasterState
from det_jupyter.errors import DetError, MasterUnreachable, ProtocolMismatch

T = TypeVar("T")

_FIND_TIMEOUT_S = 10.0


class _SharedCall(Generic[T]):
    """A blocking function, called in a thread; concurrent callers share one call's result."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._answer: asyncio.Future[T] | None = None

    @property
    def is_running(self) -> bool:
        return self._answer is not None and not self._answer.done()

    async def result(self) -> T:
        if self._answer is None or self._answer.done():
            self._answer = asyncio.ensure_future(in_thread(self._call))
            self._answer.add_done_callback(_retrieve_exception)
        return await asyncio.shield(self._answer)


def _retrieve_exception(answer: asyncio.Future[T]) -> None:
    if not answer.cancelled():
        answer.exception()  # asyncio logs an exception that no caller retrieves


class MasterLookup:
    """Finds and starts the user's master."""

    def __init__(self) -> None:
        self._finding = _SharedCall(_find_awake)
        self._starting = _SharedCall(lambda: _with_readable_folder(ensure_master))

    async def find(self) -> MasterInfo:
        """Return the running master's address.

        Raises:
            MasterUnreachable: None runs, or it cannot answer.
            ProtocolMismatch: One of another protocol version runs.
        """
        info = await self._found()
        if info is None:
            raise MasterUnreachable(ABSENT)
        return info

    async def _found(self) -> MasterInfo | None:
        try:
            async with asyncio.timeout(_FIND_TIMEOUT_S):
                return await self._finding.result()
        except TimeoutError:
            raise MasterUnreachable(
                f"the folder of det_jupyter did not answer within {_FIND_TIMEOUT_S:g} s: "
                "its drive is slow or gone"
            ) from None

    async def start(self) -> MasterInfo:
        """Return the running master's address; start it if none runs."""
        return await self._starting.result()

    async def state(self) -> MasterState:
        """Return the `master` of the handshake (messages/pages.py)."""
        if self._starting.is_running:
            return MasterState(state="starting")
        try:
            info = await self._found()
        except ProtocolMismatch as error:
            return MasterState(state="mismatch", problem=str(error), command=error.command)
        except MasterUnreachable as error:
            return MasterState(
                state="silent" if error.command else "stopped",
                problem=str(error),
                command=error.command,
            )
        if info is None:
            return MasterState(state="stopped")
        return MasterState(state="running", version=info.version)


def _find_awake() -> MasterInfo | None:
    """Return the address of a master that answers; None if none runs."""
    info = _with_readable_folder(find_master)
    if info is not None:
        must_be_awake(info)
    return info


def _with_readable_folder(call: Callable[[], T]) -> T:
    """Call a function; raise MasterUnreachable if our folder cannot be read."""
    try:
        return call()
    except (MasterUnreachable, ProtocolMismatch):
        raise
    except (DetError, OSError) as error:
        raise MasterUnreachable(str(error)) from None
