"""The reader's process: started by a connection to the reader's port, and ended with the master.

The master keeps the listening socket as long as it runs. A reader accepts connections on it:

    no connection                    no reader runs
    a connection waits               a reader is started; it accepts on the socket while it runs
    the reader has ended             the next connection starts another
    the reader has ended soon        ... after a pause, which is longer each time
    again, or it cannot be started   waiting connections are closed: if their clients are gone,
                                     they would cause starts for ever; others connect again

Each reader is forked by the starter (`reader_starter.py`). A starter that does not answer, such as
one stopped by SIGSTOP, is killed, and another starter forks the next reader. A reader reads a byte
for each commit from a socket that the master writes to, and writes its log to reader.log.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.ownership import open_own
from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.contract.values.text import error_line, signal_name
from det_jupyter.errors import DetError
from det_jupyter.master.background.reader_starter import ReaderStarter

logger = logging.getLogger(__name__)

_SOON_S = 10.0  # a reader that ran for less time has failed, whatever its exit status
_PAUSES_S = (0.2, 10.0)  # the first and the longest pause before another start
# Most connections closed at once: others may connect as fast as they are closed.
_MOST_REFUSED = 2048
_UNUSED_S = 45.0  # longer than a reader without a socket runs
_END_S = 1.0  # time for a reader to end, after its commits are closed, and after SIGTERM
_ANSWER_S = 20.0  # time for the starter to answer; doubled each time, as the computer may be slow
_LOOK_S = 5.0  # between checks whether the reader has ended, as the starter may be stopped


class ReaderProcess:
    """Starts a reader whenever one is needed.

    Args:
        listener: The socket that clients connect to; it is listening already.
        token: The token that clients have to send.
        starter: Forks readers.
        on_problem: Called with a sentence when readers fail one after the other, and with "" when
            another reader is started.
    """

    def __init__(
        self,
        listener: socket.socket,
        token: str,
        starter: ReaderStarter,
        on_problem: Callable[[str], None] = lambda problem: None,
    ) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._token = token
        self._starter = starter
        self._on_problem = on_problem
        self._running: _Running | None = None
        self._is_unwanted = False
        self._answer_s = _ANSWER_S
        self._began_at = self._used_at = -math.inf  # on the monotonic clock

    @property
    def idle_s(self) -> float:
        """Seconds since a reader was used; 0 while one is in use.

        A reader that has no connection with the token ends soon, and counts as unused.
        """
        now = time.monotonic()
        is_used = self._running is not None and now - self._began_at > _UNUSED_S
        return 0.0 if is_used else now - self._used_at

    def tell_commit(self) -> None:
        """Wake the reader, if one runs. Called at each commit."""
        if self._running is not None:
            # The reader has ended, or has so many bytes to read that it needs no more.
            with suppress(OSError):
                self._running.link.send(b"\n")

    async def run(self) -> None:
        """Start a reader when a connection waits, until cancelled; then end it."""
        pause_s = 0.0
        while True:
            await self._connection()
            began = time.monotonic()
            self._is_unwanted = False
            try:
                problem = self._log_end(await self._run_program())
            except DetError as error:
                problem = f"the reader cannot be started: {error}"
                logger.error("%s", problem)
            except Exception as error:  # a full disk, for example; it is tried again
                problem = f"the reader cannot be started: {error_line(error)}"
                logger.exception("the reader cannot be started")
            if self._is_unwanted or time.monotonic() - began >= _SOON_S:
                pause_s = 0.0
                continue
            if pause_s:
                self._on_problem(f"pages and views show nothing new: {problem}")
                self._refuse_waiting()
            pause_s = min(max(2 * pause_s, _PAUSES_S[0]), _PAUSES_S[1])
            await asyncio.sleep(pause_s)

    async def kill(self) -> None:
        """Kill a reader that does not answer; return when it has ended, or after a moment."""
        if (running := self._running) is not None:
            self._is_unwanted = True
            running.send(signal.SIGKILL)
            await asyncio.wait({running.ending}, timeout=_END_S)

    async def _connection(self) -> None:
        """Wait for a connection, without accepting it."""
        loop, waits = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._listener, waits.set)
        try:
            await waits.wait()
        finally:
            loop.remove_reader(self._listener)

    async def _run_program(self) -> int:
        """Run a reader to its end and return its exit status; end it if cancelled."""
        with self._start() as link:
            self._began_at = time.monotonic()
            self._running = running = _Running(link, self._answer_s)
            self._on_problem("")
            try:
                status = await asyncio.shield(running.ending)
                self._answer_s = _ANSWER_S
                return status
            except TimeoutError:
                self._starter.kill()
                self._answer_s *= 2
                raise DetError("its starter did not answer, and was killed") from None
            finally:
                self._running = None
                await running.end()
                now = time.monotonic()
                if now - self._began_at > _UNUSED_S:
                    self._used_at = now

    def _start(self) -> socket.socket:
        log = open_own(paths.reader_log(), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            link = self._starter.start(self._token, self._listener, log)
        except DetError as error:
            with suppress(OSError):  # the disk is full
                os.write(log, f"{error}\n".encode())
            raise
        finally:
            os.close(log)
        link.setblocking(False)
        return link

    def _log_end(self, status: int) -> str:
        """Log how it has ended, and return it."""
        if self._is_unwanted:
            level, end = logging.WARNING, "the reader did not answer: it was killed on request"
        elif status == 0:
            level, end = logging.INFO, "the reader has ended"
        elif status < 0:
            level, end = logging.WARNING, f"the reader was killed by {signal_name(-status)}"
        else:
            level = logging.ERROR
            end = f"the reader has ended with exit status {status}; see {paths.reader_log()}"
        logger.log(level, "%s", end)
        return end

    def _refuse_waiting(self) -> None:
        with suppress(OSError):  # no connection waits any more
            for _ in range(_MOST_REFUSED):
                self._listener.accept()[0].close()


class _Running:
    """A reader that is being started or runs.

    Args:
        link: The socket to which commits are written, and on which the starter sends its pid and
            exit status.
        answer_s: How long the starter may take to fork the reader.

    Attributes:
        ending: The task that returns the reader's exit status. It raises TimeoutError if the
            starter does not answer.
    """

    def __init__(self, link: socket.socket, answer_s: float) -> None:
        self.link = link
        self._answer_s = answer_s
        self._process: ProcessIdentity | None = None
        self._unsent: signal.Signals | None = None  # for a reader whose pid is not known yet
        self.ending = asyncio.create_task(self._follow())

    async def _follow(self) -> int:
        async with asyncio.timeout(self._answer_s):
            pid = await self._next_number()
        self._process = process = ProcessIdentity.of(pid)
        logger.info("started the reader, pid=%d", pid)
        if self._unsent is not None:
            self.send(self._unsent)
        status = asyncio.create_task(self._next_number())
        try:
            while process.is_alive and not status.done():
                await asyncio.wait({status}, timeout=_LOOK_S)
            async with asyncio.timeout(_ANSWER_S):
                return await status
        finally:
            status.cancel()

    async def _next_number(self) -> int:
        line = b""
        while not line.endswith(b"\n"):
            if not (byte := await asyncio.get_running_loop().sock_recv(self.link, 1)):
                raise DetError("it could not be forked (see reader.log), or its starter has ended")
            line += byte
        return int(line)

    def send(self, number: signal.Signals) -> None:
        """Send the reader a signal, if it runs, or as soon as its pid is known."""
        if self._process is None:
            self._unsent = number
        elif self._process.is_alive:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    async def end(self) -> None:
        """End the reader: close its commits, then send SIGTERM, then SIGKILL."""
        with suppress(OSError):  # it has ended
            self.link.shutdown(socket.SHUT_WR)
        for number in (signal.SIGTERM, signal.SIGKILL, None):
            await asyncio.wait({self.ending}, timeout=_END_S)
            if self.ending.done():
                return
            if number is not None:
                self.send(number)
        self.ending.cancel()
        logger.error("%s was killed and does not end", self._process or "the reader")
