"""Cuts the files that ranks write into chunks for the master.

The master's answer contains the number of bytes of each file that it has stored, and the agent
continues from there. So each byte is stored exactly once, whichever process is killed.

    journal    whole records only. An incomplete last line of a rank that was killed is never sent;
               a record that is too long for a request is replaced by an empty line
    output     whole lines. A line longer than a chunk is sent in pieces, each as a line; a last
               line without a newline is sent when the rank has exited. A line that is still
               being rewritten (a progress bar) is sent at intervals, up to its last carriage
               return. Several bars below one another (nested loops with tqdm) move the cursor up,
               and are sent up to that control sequence

Output is bounded. If a rank prints faster than the agent can send, a part is left out, and a line
in its place contains the number of bytes. Of a file that was sent, all but the newest part becomes
a hole where the file system supports that: its size stays, its disk usage does not grow.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.messages import Chunk

logger = logging.getLogger(__name__)

CHUNK_BYTES = 256 * 1024
MAX_BACKLOG_BYTES = 64 * 1024 * 1024  # output that was not sent yet
_KEPT_BACKLOG_BYTES = 32 * 1024 * 1024  # bytes that are sent of a larger backlog, the newest
_KEPT_BYTES = 16 * 1024 * 1024  # output that was sent and stays: a new master may need it
_HOLE_BYTES = 8 * 1024 * 1024  # smallest hole that is made
MAX_RECORD_BYTES = 8 * 1024 * 1024  # a request may have 8 times as many (master/http/guard.py)
_UP = b"\x1b[A"
_LINE_END = re.compile(rb"\n(?!\r)")
BAR_ENDS = ("\r", _UP.decode())  # last characters of a chunk whose last line is still rewritten
_PUNCH_HOLE_KEEPING_SIZE = 0x02 | 0x01


@dataclass(slots=True, kw_only=True)
class Stream:
    """One file of a rank, and up to which offset the master has stored it."""

    allocation_id: str
    name: str
    path: Path
    is_journal: bool
    offset: int = 0
    # Monotonic time since which every attempt to read it has failed.
    unreadable_since: float | None = None
    bar_due: float = 0.0  # monotonic time from which a progress bar is sent again
    freed: int = 0  # the file is a hole up to here

    def chunks(self, *, is_final: bool, with_bar: bool = False) -> Iterator[Chunk]:
        """Yield the chunks after `offset` that can be sent; changes no state.

        Args:
            is_final: Whether the rank has exited, so that the file grows no more.
            with_bar: Whether to send a line that is still being rewritten, up to its last carriage
                return.

        Raises:
            OSError: The file exists and cannot be read.
        """
        offset = self.offset
        try:
            size = os.stat(self.path).st_size
            if size <= offset:
                return
            opened = self.path.open("rb")
        except FileNotFoundError:  # not written yet, or removed
            return
        with opened as file:
            if not self.is_journal and size - offset > MAX_BACKLOG_BYTES:
                # At the start of a line, unless that line is longer than a chunk.
                end = size - _KEPT_BACKLOG_BYTES
                end += os.pread(file.fileno(), CHUNK_BYTES, end).find(b"\n") + 1
                gap = (
                    f"… {end - offset:,} bytes that this rank printed are left out here: it "
                    "printed them faster than they could be stored\n"
                )
                yield self._chunk(offset, end - offset, gap)
                offset = end
            while offset < size and (
                sendable := self._read(file.fileno(), offset, is_final, with_bar)
            ):
                size_bytes, text = sendable
                yield self._chunk(offset, size_bytes, text)
                offset += size_bytes

    def _chunk(self, offset: int, size_bytes: int, text: str) -> Chunk:
        return Chunk(
            allocation_id=self.allocation_id,
            stream=self.name,
            offset=offset,
            size_bytes=size_bytes,
            text=text,
        )

    def free(self) -> None:
        """Free the disk space of output that was sent, except for its newest part."""
        end = self.offset - _KEPT_BYTES
        if not self.is_journal and end - self.freed >= _HOLE_BYTES:
            with suppress(OSError):  # the file system has no holes
                make_hole(self.path, end)
            self.freed = end

    def _read(
        self, descriptor: int, offset: int, is_final: bool, with_bar: bool
    ) -> tuple[int, str] | None:
        limit = CHUNK_BYTES
        while True:
            data = os.pread(descriptor, limit, offset)
            is_full = len(data) == limit
            if self.is_journal:
                end = data.rfind(b"\n") + 1
            else:
                end = end_of_lines(data, is_full=is_full, is_final=is_final, with_bar=with_bar)
            if end:
                text = data[:end].decode("utf-8", errors="replace")
                is_bar = text.endswith(BAR_ENDS) and not is_final
                return end, text if is_bar or text.endswith("\n") else text + "\n"
            if not is_full:
                return None
            if limit >= MAX_RECORD_BYTES:
                logger.error("%s: a record of over %d bytes is skipped", self.path, limit)
                return limit, "\n"  # the rest follows as a line that is no record
            limit *= 2  # a record longer than a chunk is sent whole


def end_of_lines(data: bytes, *, is_full: bool, is_final: bool, with_bar: bool = False) -> int:
    """Return how many bytes of `data` to send as lines of output; 0 means to wait for more.

    Args:
        data: The file from the present offset on.
        is_full: Whether `data` is as long as a chunk may be.
        is_final: Whether the file grows no more.
        with_bar: Whether a carriage return ends a line too; the text after it rewrites the line.
    """
    if _UP in data and not is_final:
        end = _end_of_bars(data, are_sent=with_bar or is_full)
    else:
        end = data.rfind(b"\n") + 1
        if with_bar or (is_full and not end):
            end = max(end, data.rfind(b"\r") + 1)
    if end:
        return end
    if is_full:
        return _end_of_characters(data)
    return len(data) if is_final else 0


def _end_of_bars(data: bytes, *, are_sent: bool) -> int:
    """Return where to cut output with several bars: where the cursor is in the first bar's line.

    "\\n\\r" moves the cursor to the next bar; it ends no line.

    Args:
        are_sent: Whether to cut after the last rewriting of the bars; else before the bars.
    """
    if are_sent:
        last = data.rfind(_UP) + len(_UP)
        return max([last, *(found.end() for found in _LINE_END.finditer(data, last))])
    second_bar = data.rfind(b"\n", 0, data.find(_UP))
    return data.rfind(b"\n", 0, max(0, second_bar)) + 1


def _end_of_characters(data: bytes) -> int:
    """Return where to cut `data` so that no UTF-8 character is split."""
    for back in range(1, min(4, len(data) - 1) + 1):
        if data[-back] & 0b1100_0000 != 0b1000_0000:  # where a character begins
            is_whole = data[-back] < 0x80
            return len(data) if is_whole else len(data) - back
    return len(data)


def streams_of(run_dir: RunDir, allocation_id: str, ranks: Sequence[int]) -> list[Stream]:
    """Return the streams of these ranks of a run, journals first."""
    return [
        Stream(
            allocation_id=allocation_id,
            name=f"{kind}-{rank}",
            path=path_of(rank),
            is_journal=kind == "journal",
        )
        for kind, path_of in (("journal", run_dir.journal), ("output", run_dir.output))
        for rank in ranks
    ]


@cache
def _fallocate() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    function = getattr(library, "fallocate", None)  # Python has posix_fallocate only
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong]
    return function


def make_hole(path: Path, size_bytes: int) -> None:
    """Free the disk space of the file's first bytes, which then read as zeros. Linux only.

    Raises:
        OSError: The system or the file system does not support it.
    """
    fallocate = _fallocate()
    if fallocate is None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), str(path))
    descriptor = os.open(path, os.O_WRONLY)
    try:
        if fallocate(descriptor, _PUNCH_HOLE_KEEPING_SIZE, 0, size_bytes):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(descriptor)
