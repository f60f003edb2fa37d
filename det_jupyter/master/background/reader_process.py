"""The reader's process: started by a connection to the reader's port, and ended with the master.

The master has the listening socket for its whole life. The program inherits it and accepts there:

    no connection                    nothing runs, and nothing is done
    a connection waits               the program is started; while it runs, it has the socket
    it has ended                     the next connection starts another
    it has ended soon                ... after a pause, which is longer each time
    again, or it cannot be started   what waits is closed: clients may be gone, and their
                                     connections would start it for ever; others connect again

stdin            one line of JSON: {"token": ..., "socket": DESCRIPTOR, "version": ...}, then a
                 byte for each commit. Its end ends the program, so it never outlives a master
                 that is killed
stdout, stderr   reader.log

Its working folder is that of the data: `det master stop --everything` finds it by that.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import socket
import time
from asyncio.subprocess import Process
from collections.abc import Sequence
from contextlib import suppress

from det_jupyter._version import __version__
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.ownership import open_own
from det_jupyter.contract.values.text import signal_name

logger = logging.getLogger(__name__)

_SOON_S = 10.0  # a program that ran for less has failed, whatever its exit status
_PAUSES_S = (0.2, 10.0)  # the first and the longest before another start
_MOST_REFUSED = 2048  # at once: others of this computer may connect as fast as they are refused
_UNUSED_S = 45.0  # a reader without a socket ends sooner
_END_S = 1.0  # after the end of its stdin, SIGTERM and SIGKILL


class ReaderProcess:
    """The reader, whenever one is needed.

    Args:
        listener: The socket that clients connect to; it listens already.
        token: Which clients have to send.
        command: The command line of the program.
    """

    def __init__(self, listener: socket.socket, token: str, command: Sequence[str]) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._token = token
        self._command = command
        self._process: Process | None = None
        self._stdin: int | None = None
        self._is_unwanted = False
        self._began_at = self._used_at = -math.inf  # on the monotonic clock

    @property
    def idle_s(self) -> float:
        """Seconds since a reader was used; 0 while one is.

        One that no one with the token connects to ends soon, and counts as unused.
        """
        now = time.monotonic()
        is_used = self._process is not None and now - self._began_at > _UNUSED_S
        return 0.0 if is_used else now - self._used_at

    def tell_commit(self) -> None:
        """Wake the reader, if one runs. Called at each commit."""
        if self._stdin is not None:
            # It has ended, or has so many bytes to read that it wakes without this one.
            with suppress(BrokenPipeError, BlockingIOError):
                os.write(self._stdin, b"\n")

    async def run(self) -> None:
        """Start a reader when a connection waits, until cancelled; then end it."""
        pause_s = 0.0
        while True:
            await self._connection()
            began = time.monotonic()
            self._is_unwanted = False
            try:
                status = await self._run_program()
            except Exception:  # a full disk, for example; it is tried again
                logger.exception("the reader cannot be started")
            else:
                self._log_end(status)
            if self._is_unwanted or time.monotonic() - began >= _SOON_S:
                pause_s = 0.0
                continue
            if pause_s:
                self._refuse_waiting()
            pause_s = min(max(2 * pause_s, _PAUSES_S[0]), _PAUSES_S[1])
            await asyncio.sleep(pause_s)

    async def kill(self) -> None:
        """Kill the reader, which does not answer; return when it has ended, or soon."""
        if (process := self._process) is not None:
            self._is_unwanted = True
            with suppress(ProcessLookupError):
                process.kill()
            await asyncio.wait({asyncio.create_task(process.wait())}, timeout=_END_S)

    async def _connection(self) -> None:
        """Wait for a connection; do not accept it."""
        loop, waits = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._listener, waits.set)
        try:
            await waits.wait()
        finally:
            loop.remove_reader(self._listener)

    async def _run_program(self) -> int:
        """Run the program to its end and return its exit status; end it if cancelled."""
        its_stdin, stdin = os.pipe()
        try:
            os.set_blocking(stdin, False)
            settings = {
                "token": self._token,
                "socket": self._listener.fileno(),
                "version": __version__,
            }
            os.write(stdin, json.dumps(settings).encode() + b"\n")
            self._stdin = stdin
            self._began_at = time.monotonic()
            try:
                self._process = await self._start(its_stdin)
            finally:
                os.close(its_stdin)
            logger.info("started the reader, pid=%d", self._process.pid)
            return await self._process.wait()
        finally:
            self._stdin = None
            os.close(stdin)
            if self._process is not None:
                await _end(self._process)
                self._process, now = None, time.monotonic()
                if now - self._began_at > _UNUSED_S:
                    self._used_at = now

    async def _start(self, stdin: int) -> Process:
        log = open_own(paths.reader_log(), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            return await asyncio.create_subprocess_exec(
                *self._command,
                stdin=stdin,
                stdout=log,
                stderr=log,
                pass_fds=(self._listener.fileno(),),
                start_new_session=True,
                cwd=paths.data_dir(),
            )
        finally:
            os.close(log)

    def _log_end(self, status: int) -> None:
        if self._is_unwanted:
            logger.warning("the reader did not answer: it was killed on request")
        elif status == 0:
            logger.info("the reader has ended")
        elif status < 0:
            logger.warning("the reader was killed by %s", signal_name(-status))
        else:
            logger.error("the reader has ended with exit status %d; see reader.log", status)

    def _refuse_waiting(self) -> None:
        with suppress(OSError):  # none waits any more
            for _ in range(_MOST_REFUSED):
                self._listener.accept()[0].close()


async def _end(process: Process) -> None:
    """End a process: after the end of its stdin by SIGTERM, then by SIGKILL."""
    ending = asyncio.create_task(process.wait())
    for send_signal in (process.terminate, process.kill, None):
        await asyncio.wait({ending}, timeout=_END_S)
        if ending.done():
            return
        if send_signal is not None:
            with suppress(ProcessLookupError):
                send_signal()
    ending.cancel()
    logger.error("the reader (pid %d) was killed and does not end", process.pid)
