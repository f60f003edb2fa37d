"""The master as the Jupyter server sees it: where it is, what is wrong with it, how to start it.

Looking for it reads files and asks for processes, so it happens in threads: a folder on a dead
network drive holds up neither the server's loop nor, as the threads are daemons, its end.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from det_jupyter.connection.autostart import ensure_master, find_master
from det_jupyter.connection.session import must_be_awake
from det_jupyter.contract.messages import MasterInfo
from det_jupyter.contract.messages.pages import ABSENT, MasterState
from det_jupyter.errors import DetError, MasterUnreachable, ProtocolMismatch

T = TypeVar("T")

_LOOK_S = 10.0


class _Shared(Generic[T]):
    """A function that blocks, called in a thread; those who ask meanwhile share its answer."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._answer: asyncio.Future[T] | None = None

    @property
    def is_under_way(self) -> bool:
        return self._answer is not None and not self._answer.done()

    async def ask(self) -> T:
        if self._answer is None or self._answer.done():
            self._answer = asyncio.get_running_loop().create_future()
            self._answer.add_done_callback(_note_outcome)
            args = (self._answer, asyncio.get_running_loop())
            threading.Thread(target=self._run, args=args, name="det-master", daemon=True).start()
        return await asyncio.shield(self._answer)

    def _run(self, answer: asyncio.Future[T], loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError):  # of a loop that has ended, with the server
            try:
                result = self._call()
            except Exception as error:  # the boundary of the thread: raised by those who asked
                loop.call_soon_threadsafe(answer.set_exception, error)
            else:
                loop.call_soon_threadsafe(answer.set_result, result)


def _note_outcome(answer: asyncio.Future[T]) -> None:
    if not answer.cancelled():
        answer.exception()  # else it is reported as forgotten when all have gone who asked


class MasterLine:
    """Looks for the user's master and starts it, without blocking."""

    def __init__(self) -> None:
        self._looking = _Shared(_look)
        self._starting = _Shared(lambda: _asked(ensure_master))

    async def find(self) -> MasterInfo:
        """Return where the running master is.

        Raises:
            MasterUnreachable: None runs, or it cannot answer.
            ProtocolMismatch: One runs, of a version that we cannot talk to.
        """
        info = await self._found()
        if info is None:
            raise MasterUnreachable(ABSENT)
        return info

    async def _found(self) -> MasterInfo | None:
        try:
            return await asyncio.wait_for(self._looking.ask(), _LOOK_S)
        except TimeoutError:
            raise MasterUnreachable(
                f"the folder of det_jupyter did not answer within {_LOOK_S:g} s: its drive is "
                "slow or gone"
            ) from None

    async def start(self) -> MasterInfo:
        """Return the running master, started now if need be."""
        return await self._starting.ask()

    async def state(self) -> MasterState:
        """Return the `master` of the handshake (messages/pages.py)."""
        if self._starting.is_under_way:
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


def _look() -> MasterInfo | None:
    """Return where the master that answers is; None: none runs."""
    info = _asked(find_master)
    if info is not None:
        must_be_awake(info)
    return info


def _asked(ask: Callable[[], T]) -> T:
    """Return what is found; without a usable folder there is no master."""
    try:
        return ask()
    except (MasterUnreachable, ProtocolMismatch):
        raise
    except (DetError, OSError) as error:
        raise MasterUnreachable(str(error)) from None
