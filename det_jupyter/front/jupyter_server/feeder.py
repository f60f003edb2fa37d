"""The feeder as the Jupyter server's child: started at the first tab, and again when it has died.

stdin     one line of JSON: {"token": ..., "start_master": true}; its end ends the feeder, so
          none outlives the server, however that ends
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
_PATIENCE_S = 5.0  # a socket waits that long for the next start; for a later one it is refused
_STEADY_S = 60.0  # one that lived for so long has not failed to start
_SHORT_S = 0.1  # to let one end that is of no use
_LAST_WORDS_S = 5.0  # what was said longer before the end is not its reason
_LINES_PER_MINUTE, _LINE_CHARS = 60, 500


@dataclass(frozen=True, slots=True)
class Address:
    """Where a feeder listens, and its token."""

    url: str
    token: str

    def headers(self, *, may_write: bool) -> dict[str, str]:
        """Return what a socket is opened with."""
        return {
            "Authorization": f"Bearer {self.token}",
            "X-Det-May-Write": "1" if may_write else "0",
        }


class Feeder:
    """A feeder, started when it is needed.

    Args:
        start_s: How long it may take to say its port.
        on_started: Called with the address of each new one.
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
        self._last_line, self._said_at = "", 0.0
        self._is_stopping = self._is_closed = False
        self.state = "off"
        self.problem = ""

    async def address(self) -> Address:
        """Return where the feeder listens; starts it if need be.

        Raises:
            DetError: It cannot be started now.
        """
        async with self._lock:
            if self._is_closed:
                raise DetError("the Jupyter server is stopping")
            if self._address is None:
                await self._pause()
                self._address = await self._start()
                self._on_started(self._address)
            return self._address

    def is_at(self, address: Address) -> bool:
        """Return whether the feeder that listens there still runs."""
        return self._address == address

    async def close(self) -> None:
        """End the feeder for good."""
        self._is_closed = True
        await self.stop()

    async def stop(self) -> None:
        """End the feeder; the next call of `address` starts another."""
        async with self._lock:
            await self._stop()

    async def drop(self, address: Address) -> None:
        """End a feeder that does not answer, at once, if it is still the one in use."""
        async with self._lock:
            if self.is_at(address):
                await self._stop(patience_s=_SHORT_S)

    async def _stop(self, patience_s: float = 3.0) -> None:
        process, self._is_stopping = self._process, True
        if process is not None:
            await _end(process, patience_s)
        for task in list(self._tasks):
            await task  # they end with the process
        self.state, self.problem, self._is_stopping = "off", "", False

    async def _pause(self) -> None:
        pause_s = self._not_before - time.monotonic()
        if pause_s > _PATIENCE_S:
            raise DetError(f"{self.problem}; it is started again in {pause_s:.0f} s")
        await asyncio.sleep(max(0.0, pause_s))

    async def _start(self) -> Address:
        self.state, self._last_line = "starting", ""
        token = secrets.token_urlsafe(32)
        began = time.monotonic()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=PIPE, stdout=PIPE, stderr=PIPE,
                start_new_session=True,  # Ctrl+C in the server's terminal is the server's
            )  # fmt: skip
        except OSError as error:
            self._note_end(began, f"the feeder cannot be started: {error}")
            raise DetError(self.problem) from None
        self._process = process
        self._run(self._log_lines(process))
        try:
            async with asyncio.timeout(self._start_s):
                port = await _agree_on_port(process, token, start_master=self._start_master)
        except (OSError, ValueError, KeyError, TypeError) as error:
            await _end(process, _SHORT_S)
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=_SHORT_S)  # for its last words
            how = f"{_ending(process.returncode)} before it could be used"
            if isinstance(error, TimeoutError):
                how = f"did not start within {self._start_s:g} s"
            self._note_end(began, f"the feeder {how}{self._last_words()}")
            raise DetError(self.problem) from None
        self._run(self._watch(process, began))
        self.state, self.problem = "running", ""
        return Address(f"ws://127.0.0.1:{port}/socket", token)

    async def _watch(self, process: Process, began: float) -> None:
        assert process.stdout is not None
        while await process.stdout.read(65536):
            pass  # it has nothing to say there
        status = await process.wait()
        self._address = None
        if not self._is_stopping:
            self._start_master = False  # the user may have stopped it since, with the feeder
            self._note_end(began, f"the feeder {_ending(status)}{self._last_words()}")

    def _last_words(self) -> str:
        is_last = time.monotonic() - self._said_at < _LAST_WORDS_S
        return f": {self._last_line}" if self._last_line and is_last else ""

    def _note_end(self, began: float, problem: str) -> None:
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
            except ValueError:  # longer than the stream's buffer, which is empty now
                continue
            if not line:
                return
            self._last_line = printable(line.decode("utf-8", "replace").strip())[:_LINE_CHARS]
            self._said_at = time.monotonic()
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


async def _agree_on_port(process: Process, token: str, *, start_master: bool) -> int:
    assert process.stdin is not None
    assert process.stdout is not None
    hello = {"token": token, "start_master": start_master}
    process.stdin.write(json.dumps(hello).encode() + b"\n")
    await process.stdin.drain()
    return int(json.loads(await process.stdout.readline())["port"])


def _ending(status: int | None) -> str:
    if status is not None and status < 0:
        return f"was killed by {signal_name(-status)}"
    return f"has ended with exit status {status}"


async def _end(process: Process, patience_s: float) -> None:
    """End a process: by the end of its input, then by signals that are harder each time."""
    if process.stdin is not None:
        process.stdin.close()
    for harder in (process.terminate, process.kill, None):
        try:
            await asyncio.wait_for(process.wait(), patience_s)
            return
        except TimeoutError:
            with suppress(ProcessLookupError):
                if harder is not None:
                    harder()
