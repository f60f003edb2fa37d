"""Runs the feeder as a child process of the Jupyter Server, and restarts it after a crash.

stdin     one line of JSON: {"token": ..., "start_master": true}; its end ends the feeder, which so
          never outlives the server, even if that is killed
stdout    one line of JSON: {"port": ...}
stderr    goes to the server's log, a limited number of lines a minute
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from logging import Logger
from typing import Any

from det_jupyter.contract.values.text import printable, signal_name
from det_jupyter.errors import DetError

_FIRST_PAUSE_S, _MOST_PAUSE_S = 0.5, 30.0
_MAX_WAIT_S = 5.0  # of a socket for the next start; it is refused if that is later
_STEADY_S = 60.0  # a process that ran for so long did start: back-off begins anew
_SHORT_S = 0.1  # before signals, for a process that does not answer
_REASON_S = 5.0  # a log line older than this is not why the process has ended
_LINES_PER_MINUTE, _LINE_CHARS = 60, 500


@dataclass(frozen=True, slots=True)
class Address:
    """The URL and the token of a feeder."""

    url: str
    token: str

    def headers(self, *, may_write: bool) -> dict[str, str]:
        """Return the headers with which a socket is opened."""
        return {
            "Authorization": f"Bearer {self.token}",
            "X-Det-May-Write": "1" if may_write else "0",
        }


class FeederProcess:
    """The feeder's process, started when an address is requested.

    Args:
        command: The command line of the feeder.
        start_master: Whether the first feeder starts a master if none runs.
        start_s: How long it may take to write its port.
        on_started: Called with the address of each new process.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        start_master: bool,
        start_s: float,
        on_started: Callable[[Address], None],
        log: Logger,
    ) -> None:
        self._command = command
        self._start_master = start_master
        self._start_s = start_s
        self._on_started = on_started
        self._log = log
        self._lock = asyncio.Lock()
        self._process: Process | None = None
        self._address: Address | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._num_failures = 0
        self._not_before = 0.0
        self._last_line, self._last_line_at = "", 0.0
        self._is_stopping = self._is_closed = False
        self.state = "off"
        self.problem = ""

    async def address(self) -> Address:
        """Return the feeder's address; start it if it does not run.

        Raises:
            DetError: It cannot be started now.
        """
        async with self._lock:
            if self._is_closed:
                raise DetError("the Jupyter server is stopping")
            if self._address is None:
                pause_s = self._not_before - time.monotonic()
                if pause_s > _MAX_WAIT_S:
                    raise DetError(f"{self.problem}; it is started again in {pause_s:.0f} s")
                await asyncio.sleep(max(0.0, pause_s))
                self._address = await self._start()
                self._on_started(self._address)
            return self._address

    def is_at(self, address: Address) -> bool:
        """Return whether the feeder at this address is the one that runs."""
        return self._address == address

    async def close(self) -> None:
        """End the feeder; `address` raises from now on."""
        self._is_closed = True
        await self.stop()

    async def stop(self) -> None:
        """End the feeder; the next call of `address` starts another."""
        async with self._lock:
            await self._stop()

    async def drop(self, address: Address) -> None:
        """Kill a feeder that does not answer, unless another one runs already."""
        async with self._lock:
            if self.is_at(address):
                await self._stop(patience_s=_SHORT_S)

    async def _stop(self, patience_s: float = 3.0) -> None:
        process, self._is_stopping = self._process, True
        if process is not None:
            await _end(process, patience_s)
        if self._tasks:  # they end with the process, unless a child of it keeps its output open
            _, late = await asyncio.wait(self._tasks, timeout=patience_s)
            for task in late:
                task.cancel()
        self._process = self._address = None
        self.state, self.problem, self._is_stopping = "off", "", False

    async def _start(self) -> Address:
        self.state, self._last_line = "starting", ""
        token = secrets.token_urlsafe(32)
        began = time.monotonic()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=PIPE, stdout=PIPE, stderr=PIPE,
                start_new_session=True,  # Ctrl+C in the terminal signals the server alone
            )  # fmt: skip
        except OSError as error:
            self._on_ended(began, f"the feeder cannot be started: {error}")
            raise DetError(self.problem) from None
        self._process = process
        self._run(self._log_lines(process))
        try:
            async with asyncio.timeout(self._start_s):
                port = await _exchange_port(process, token, start_master=self._start_master)
        except asyncio.CancelledError:
            process.kill()  # nothing watches it yet
            raise
        except (OSError, ValueError, KeyError, TypeError) as error:
            await _end(process, _SHORT_S)
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=_SHORT_S)  # they read the rest of its log
            how = f"{_how_ended(process.returncode)} before it could be used"
            if isinstance(error, TimeoutError):
                how = f"did not start within {self._start_s:g} s"
            self._on_ended(began, f"the feeder {how}{self._last_log_line()}")
            raise DetError(self.problem) from None
        self._run(self._watch(process, began))
        self.state, self.problem = "running", ""
        return Address(f"ws://127.0.0.1:{port}/socket", token)

    async def _watch(self, process: Process, began: float) -> None:
        assert process.stdout is not None
        while await process.stdout.read(65536):
            pass  # its stdout closes when it ends; nothing is written there
        status = await process.wait()
        self._address = None
        if not self._is_stopping:
            self._start_master = False  # `det master stop --everything` ends feeders too
            self._on_ended(began, f"the feeder {_how_ended(status)}{self._last_log_line()}")

    def _last_log_line(self) -> str:
        is_recent = time.monotonic() - self._last_line_at < _REASON_S
        return f": {self._last_line}" if self._last_line and is_recent else ""

    def _on_ended(self, began: float, problem: str) -> None:
        was_steady = time.monotonic() - began > _STEADY_S
        self._num_failures = 1 if was_steady else self._num_failures + 1
        pause_s = min(_MOST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (self._num_failures - 1))
        self._not_before = time.monotonic() + pause_s
        self._process = self._address = None
        self.state, self.problem = "ended", problem
        self._log.warning("%s", problem)

    async def _log_lines(self, process: Process) -> None:
        assert process.stderr is not None
        minute, num_lines = 0, 0
        while True:
            try:
                line = await process.stderr.readline()
            except ValueError:  # longer than the stream's buffer, which asyncio has cleared
                continue
            if not line:
                return
            self._last_line = printable(line.decode("utf-8", "replace").strip())[:_LINE_CHARS]
            self._last_line_at = time.monotonic()
            if minute != (minute := int(time.monotonic() / 60)):
                if num_lines > _LINES_PER_MINUTE:
                    self._log.info("feeder: %d lines left out", num_lines - _LINES_PER_MINUTE)
                num_lines = 0
            num_lines += 1
            if num_lines <= _LINES_PER_MINUTE:
                self._log.info("feeder: %s", self._last_line)

    def _run(self, task: Coroutine[Any, Any, None]) -> None:
        running = asyncio.create_task(task)
        self._tasks.add(running)
        running.add_done_callback(self._tasks.discard)


async def _exchange_port(process: Process, token: str, *, start_master: bool) -> int:
    assert process.stdin is not None
    assert process.stdout is not None
    settings = {"token": token, "start_master": start_master}
    process.stdin.write(json.dumps(settings).encode() + b"\n")
    await process.stdin.drain()
    return int(json.loads(await process.stdout.readline())["port"])


def _how_ended(status: int | None) -> str:
    if status is not None and status < 0:
        return f"was killed by {signal_name(-status)}"
    return f"has ended with exit status {status}"


async def _end(process: Process, patience_s: float) -> None:
    """End a process: close its input, then send SIGTERM and SIGKILL, each after `patience_s`."""
    if process.stdin is not None:
        process.stdin.close()
    for send_signal in (process.terminate, process.kill, None):
        try:
            async with asyncio.timeout(patience_s):
                await process.wait()
            return
        except TimeoutError:
            with suppress(ProcessLookupError):
                if send_signal is not None:
                    send_signal()
