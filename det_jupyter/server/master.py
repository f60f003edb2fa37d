"""The master as the Jupyter server sees it: where it is, what is wrong with it, how to start it.

Looking for it reads files and asks for processes, so it happens in threads of our own: a folder on
a dead network drive holds up neither the server's loop nor the threads that others share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from det_jupyter.autostart import ensure_master, find_master
from det_jupyter.errors import DetError, MasterUnreachable, ProtocolMismatch
from det_jupyter.session import must_be_awake
from det_jupyter.wire import MasterInfo

T = TypeVar("T")

_LOOK_S = 10.0


class MasterLine:
    """Looks for the user's master and starts it, without blocking."""

    def __init__(self) -> None:
        # Apart: starting takes seconds, and looking is to go on meanwhile.
        self._lookers = ThreadPoolExecutor(2, thread_name_prefix="det-master-look")
        self._starters = ThreadPoolExecutor(1, thread_name_prefix="det-master-start")
        self._starting: asyncio.Future[MasterInfo] | None = None

    async def find(self) -> MasterInfo:
        """Return where the running master is.

        Raises:
            MasterUnreachable: None runs, or it cannot answer.
            ProtocolMismatch: One runs, of a version that we cannot talk to.
        """
        info = await self._look(find_master)
        if info is None:
            raise MasterUnreachable(
                "no det_jupyter master runs; start it in the sidebar, or with "
                "`%det_experiment list` in a notebook"
            )
        await self._look(lambda: must_be_awake(info))
        return info

    async def start(self) -> MasterInfo:
        """Return the running master, started now if need be; many may wait for one start."""
        if self._starting is None or self._starting.done():
            loop = asyncio.get_running_loop()
            self._starting = loop.run_in_executor(self._starters, _asked, ensure_master)
        return await asyncio.shield(self._starting)

    async def state(self) -> dict[str, str]:
        """Return the `master` of the handshake (wire/pages.py)."""
        if self._starting is not None and not self._starting.done():
            return _said("starting")
        try:
            info = await self.find()
        except ProtocolMismatch as error:
            return _said("mismatch", problem=str(error), command=error.command)
        except MasterUnreachable as error:
            state = "silent" if error.command else "stopped"
            return _said(state, problem=str(error), command=error.command)
        return _said("running", version=info.version)

    def close(self) -> None:
        """End the threads as soon as they have nothing to do; waits for none."""
        for threads in (self._lookers, self._starters):
            threads.shutdown(wait=False, cancel_futures=True)

    async def _look(self, look: Callable[[], T]) -> T:
        future = asyncio.get_running_loop().run_in_executor(self._lookers, _asked, look)
        try:
            return await asyncio.wait_for(future, _LOOK_S)
        except TimeoutError:
            raise MasterUnreachable(
                f"the folder of det_jupyter did not answer within {_LOOK_S:g} s: its drive is "
                "slow or gone"
            ) from None


def _asked(ask: Callable[[], T]) -> T:
    """Return what is found; without a usable folder there is no master."""
    try:
        return ask()
    except (MasterUnreachable, ProtocolMismatch):
        raise
    except (DetError, OSError) as error:
        raise MasterUnreachable(str(error)) from None


def _said(
    state: str, *, version: str = "", problem: str = "", command: str = ""
) -> dict[str, str]:
    return {"state": state, "version": version, "problem": problem, "command": command}
