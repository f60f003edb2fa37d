"""The lease of an agent's ranks: how long they may run without an answer of the master.

Only an agent on another computer than the master's has one. When the master has received nothing
from the agent for a while, it starts the agent's trials elsewhere, and the ranks here must have
ended by then:

    0 s             the last request begins that the master answers (and receives later)
    FENCE_S         the agent ends its gangs; its fork servers stay
    + _MARGIN_S     the watcher kills all processes that the agent has started: the agent is
                    stopped (SIGSTOP, Ctrl-Z, a debugger), hangs, or could not end them
    LOST_S          the master starts the trials elsewhere (agent_supervisor.py)

The watcher (lease_watch.py) is a process of its own, because neither a stopped agent nor a rank
that holds the GIL can do anything. While the agent has no gangs, it holds no lease. The clock runs
on while the computer is suspended.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress

from det_jupyter.agent.runs.lease_watch import EXPIRED
from det_jupyter.agent.starting.rank_processes import StartFailed
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.clock_steps import since_boot
from det_jupyter.contract.messages import Loss

logger = logging.getLogger(__name__)

FENCE_S = 25.0
MARGIN_S = 1.0
_ANSWER_S = 30.0  # for a watcher that has just been started, on a busy computer
_EXIT_S = 5.0
_MOST_BYTES = 1 << 16  # most bytes read at a time
_PAUSE_S = 2.0  # pause between two starts of the watcher


class Lease:
    """The lease of all ranks of an agent process, and its watcher.

    Args:
        fence_s: After how many seconds without an answer the agent ends its gangs.
    """

    def __init__(self, fence_s: float = FENCE_S) -> None:
        self.fence_s = fence_s
        self._answered_at = since_boot()
        self._is_held = False
        self._watcher: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0  # monotonic
        self._connection: socket.socket | None = None
        self._received = b""
        self._received_until = math.nan  # the latest end of the lease that the watcher has
        self._has_news = asyncio.Event()
        self._num_expired = 0

    @property
    def unanswered_s(self) -> float:
        """Seconds since the last request began that the master has answered."""
        return since_boot() - self._answered_at

    def renew(self, began_at: float) -> None:
        """Renew the lease: the master has answered a request that began then (`since_boot`)."""
        self._answered_at = max(self._answered_at, began_at)
        if self._is_held:
            self._send(self._until())

    async def hold(self) -> int:
        """Begin the lease before ranks are started; return its number for `has_expired_since`.

        When it returns, the watcher has received the end of the lease, and kills nothing before
        that time.

        Raises:
            StartFailed: There is no watcher, or the master does not answer.
        """
        self._is_held = True
        self.keep_watched()
        until = self._until()
        self._send(until)
        try:
            async with asyncio.timeout(_ANSWER_S):
                while not until <= self._received_until < math.inf:
                    self._has_news.clear()
                    await self._has_news.wait()
        except TimeoutError:
            raise StartFailed(
                "the process that ends ranks when the agent cannot has not answered for "
                f"{_ANSWER_S:g} s"
            ) from None
        if self.unanswered_s > self.fence_s:
            silent_s = f"{self.unanswered_s:.0f} s"
            raise StartFailed(f"the master has not answered for {silent_s}", Loss.MASTER)
        return self._num_expired

    def release(self) -> None:
        """End the lease: the agent has no ranks."""
        if self._is_held:
            self._is_held = False
            self._send(math.inf)

    def has_expired_since(self, number: int) -> bool:
        """Return whether the watcher has killed ranks, or begun to, since `hold` returned this."""
        self._receive()
        return self._num_expired > number

    def keep_watched(self) -> None:
        """Start the watcher if it does not run."""
        if self._watcher is not None:
            code = self._watcher.poll()
            if code is None and self._connection is not None:
                return
            if time.monotonic() - self._started_at < _PAUSE_S:  # it may never work
                return
            logger.warning("the process that ends ranks has exited (%s): started again", code)
        self._disconnect()
        self._started_at = time.monotonic()
        try:
            self._watcher, self._connection = _start_watcher()
        except OSError as error:  # it is tried again; meanwhile no rank is started
            logger.error("the process that ends ranks cannot be started: %s", error)
            return
        asyncio.get_running_loop().add_reader(self._connection, self._receive)
        if self._is_held:
            self._send(self._until())

    async def close(self) -> None:
        """End the lease and the watcher: the agent exits, and has no ranks."""
        self.release()
        self._disconnect()
        if self._watcher is not None:
            with suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._watcher.wait, _EXIT_S)

    def _until(self) -> float:
        return self._answered_at + self.fence_s + MARGIN_S

    def _send(self, until: float) -> None:
        if self._connection is not None:
            with suppress(OSError):  # it has exited and is started again, or is stopped
                self._connection.send(b"%r\n" % until)

    def _receive(self) -> None:
        if self._connection is None:
            return
        try:
            data = self._connection.recv(_MOST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._disconnect()
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            if line == EXPIRED:
                self._num_expired += 1
                logger.error("the lease has expired: all ranks were killed")
            else:
                self._received_until = float(line)
        self._has_news.set()

    def _disconnect(self) -> None:
        if self._connection is not None:
            asyncio.get_running_loop().remove_reader(self._connection)
            self._connection.close()
            self._connection = None
            self._received, self._received_until = b"", math.nan


def _start_watcher() -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Return a new watcher, and the connection to it.

    Raises:
        OSError: For example, no file can be opened.
    """
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs:
        try:
            watcher = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "det_jupyter.agent.runs.lease_watch"),
                    *(str(theirs.fileno()), str(os.getpid())),
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,  # a Ctrl-Z in the agent's terminal must not stop it
                cwd=paths.data_dir(),
            )
        except OSError:
            ours.close()
            raise
    return watcher, ours
