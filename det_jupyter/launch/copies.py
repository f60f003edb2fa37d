"""Copies what workers print, line by line; wakes when one prints or ends, or a signal comes.

The bytes may be lines of any length, progress bars that rewrite their line after a carriage return
(tqdm), in any encoding or none, and a last line without line end. They are not changed, but each
line gets a prefix.
"""

from __future__ import annotations

import os
import re
import select
import selectors
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

_READ_BYTES = 1 << 16
_WAIT_S = 0.5
_WAIT_WITHOUT_PIDFD_S = 0.05
_IDLE_S = 1.0  # pause after which an incomplete line is written: a prompt, "loading..."
_DRAIN_S = 1.0  # how long to read on when all workers have ended but a process holds their pipe
_TAIL_BYTES = 16 * 1024
_TAIL_LINES = 10
_LINE_CHARACTERS = 300
# A line is buffered until it ends, so that lines of several ranks do not mix; at most so much.
MAX_HELD_BYTES = 1 << 20

_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
_ENDS = (b"\n", b"\r")


class Prefixer:
    """Puts a prefix before each line of one stream. A carriage return ends a line, too.

    >>> lines = Prefixer(b"[rank=1] ")
    >>> lines.feed(b"one\\ntw"), lines.feed(b"o\\r"), lines.feed(b"\\nthree"), lines.flush()
    (b'[rank=1] one\\n', b'[rank=1] two\\r', b'\\n', b'[rank=1] three')
    """

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._held = bytearray()
        self._has_begun = False  # a part of the line was written already, with the prefix
        self._is_after_cr = False

    @property
    def holds(self) -> bool:
        return bool(self._held)

    def feed(self, data: bytes) -> bytes:
        """Return the lines that are complete now, with the prefix."""
        made = bytearray()
        begins_in_an_end = self._is_after_cr and data[:1] == b"\n"
        if data:
            self._is_after_cr = data.endswith(b"\r")
        if begins_in_an_end:
            made += b"\n"
            data = data[1:]
        for line in _LINE.findall(data):
            if line.endswith(_ENDS):
                self._held += line
                made += self.flush()
                self._has_begun = False
            else:
                self._held += line
        if len(self._held) > MAX_HELD_BYTES:
            made += self.flush()
        return bytes(made)

    def flush(self) -> bytes:
        """Return the buffered part of a line; the rest of the line gets no prefix."""
        held = bytes(self._held)
        self._held.clear()
        if not held:
            return b""
        # tqdm writes the carriage return before the bar: alone it is no line.
        is_new = not self._has_begun and held not in (b"\r", b"\r\n")
        self._has_begun = True
        return self._prefix + held if is_new else held


class Tail:
    """Keeps the last 16 KiB of a worker's output."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, data: bytes) -> None:
        self._bytes += data
        del self._bytes[:-_TAIL_BYTES]

    def lines(self) -> list[str]:
        """Return the last lines, as a terminal would show them."""
        text = self._bytes.decode(errors="replace").replace("\r\n", "\n")
        rows = [line.rstrip("\r").rpartition("\r")[2] for line in text.rstrip().split("\n")]
        return [row[:_LINE_CHARACTERS] for row in rows if row.strip()][-_TAIL_LINES:]


@dataclass(slots=True)
class _Copy:
    source: IO[bytes]
    target: int
    lines: Prefixer
    tail: Tail
    last: float = 0.0


class Copies:
    """Copies the output streams of workers to those of this process."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._woken, self._wakes = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wakes, False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._copies: list[_Copy] = []
        self._pidfds: list[int] = []
        self._wait_s = _WAIT_S

    def add(self, source: IO[bytes], target: int, prefix: bytes, tail: Tail) -> None:
        """Copy a stream to one of our descriptors, with a prefix before each line."""
        copy = _Copy(source, target, Prefixer(prefix), tail)
        self._copies.append(copy)
        self._selector.register(source, selectors.EVENT_READ, copy)

    def wake_at_end_of(self, pid: int) -> None:
        """Let `copy` return when this process ends."""
        try:
            pidfd = os.pidfd_open(pid)
        except (AttributeError, OSError):  # not Linux, or one from before 5.3
            self._wait_s = _WAIT_WITHOUT_PIDFD_S
            return
        self._pidfds.append(pidfd)
        self._selector.register(pidfd, selectors.EVENT_READ, pidfd)

    def wake(self) -> None:
        """Let `copy` return. May be called by signal handlers."""
        with suppress(BlockingIOError):
            os.write(self._wakes, b"!")

    def copy(self, wait_s: float | None = None) -> bool:
        """Wait for output, `wake`, the end of a process or the timeout; copy the output.

        Returns:
            Whether output was copied.
        """
        has_copied = False
        for key, _ in self._selector.select(self._wait_s if wait_s is None else wait_s):
            if isinstance(key.data, _Copy):
                self._pass_on(key.data)
                has_copied = True
            elif key.fd == self._woken:
                with suppress(BlockingIOError):
                    os.read(self._woken, _READ_BYTES)
            else:  # a process has ended
                self._selector.unregister(key.fd)
        now = time.monotonic()
        for copy in list(self._copies):
            if copy.lines.holds and now > copy.last + _IDLE_S:
                self._write(copy, copy.lines.flush())
        return has_copied

    def close(self) -> None:
        """Copy the remaining output for at most 1 s, and close the streams."""
        deadline = time.monotonic() + _DRAIN_S
        while self._copies and time.monotonic() < deadline:
            self.copy(wait_s=0.05)
        for copy in list(self._copies):
            self._end(copy)
        self._selector.close()
        for descriptor in (self._woken, self._wakes, *self._pidfds):
            os.close(descriptor)

    def _pass_on(self, copy: _Copy) -> None:
        data = os.read(copy.source.fileno(), _READ_BYTES)
        if not data:
            self._end(copy)
            return
        copy.last = time.monotonic()
        copy.tail.add(data)
        self._write(copy, copy.lines.feed(data))

    def _end(self, copy: _Copy) -> None:
        self._copies.remove(copy)
        self._selector.unregister(copy.source)
        copy.source.close()
        with suppress(OSError):
            _write_all(copy.target, copy.lines.flush())

    def _write(self, copy: _Copy, data: bytes) -> None:
        try:
            _write_all(copy.target, data)
        except OSError:  # closed by its reader: the worker has to get the error as without us
            copy.lines.flush()
            self._end(copy)


def _write_all(target: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(target, left) :]
        except BlockingIOError:  # a terminal that another program has made non-blocking
            select.select([], [target], [])
