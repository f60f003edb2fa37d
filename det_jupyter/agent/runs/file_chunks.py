"""Cuts the files that ranks write into chunks for the master.

The master's answer says how many bytes of each file it has, and the agent continues from there.
So each byte is stored exactly once, whichever process is killed.

    journal    whole records only. The torn last line of a dead rank is never sent; a record that
               is too long for a request is replaced by an empty line
    output     whole lines, except for a line longer than a chunk and a last line without an end:
               these are sent as lines of their own; and now and then a line that is still being
               rewritten (a progress bar), up to its last carriage return. Bars below one another
               (nested loops with tqdm) move the cursor up, and are sent up to there

Output is bounded. If a rank prints faster than the agent can send, a part is left out, and a line
says how much. In a file that was sent, all but the newest part is made a hole where the file
system can do that: its size stays, its use of the disk does not grow.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.messages import Chunk

logger = logging.getLogger(__name__)

CHUNK_BYTES = 256 * 1024
MAX_BACKLOG_BYTES = 64 * 1024 * 1024  # of output that is not sent yet
_KEPT_BACKLOG_BYTES = 32 * 1024 * 1024  # of a larger backlog, the newest bytes
_KEPT_BYTES = 16 * 1024 * 1024  # of output that was sent: a new master may lack it
_HOLE_BYTES = 8 * 1024 * 1024  # size from which a hole is worth a call
MAX_RECORD_BYTES = 8 * 1024 * 1024  # a request may have eight times as many (master/http/guard.py)
_UP = b"\x1b[A"
_LINE_END = re.compile(rb"\n(?!\r)")
BAR_ENDS = ("\r", _UP.decode())  # of a part of an output whose last line is still rewritten
_PUNCH_HOLE_KEEPING_SIZE = 0x02 | 0x01


@dataclass(slots=True, kw_only=True)
class Stream:
    """One file of a rank, sent up to `offset`."""

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
        """Yield the chunks beyond `offset` that can be sent; changes no state.

        Args:
            is_final: The rank has ended, so the file grows no more.
            with_bar: Also a line that is still being rewritten, up to its last carriage return.

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
                end = _next_line(file.fileno(), size - _KEPT_BACKLOG_BYTES)
                gap = (
                    f"… {end - offset:,} bytes that this rank printed are left out here: it "
                    "printed them faster than they could be stored\n"
                )
                yield self._chunk(offset, end - offset, gap)
                offset = end
            while offset < size and (
                part := self._read(file.fileno(), offset, is_final, with_bar)
            ):
                size_bytes, text = part
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
        """Free the disk space of old output that was sent."""
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
                return limit, "\n"  # its rest follows as a line that is no record
            limit *= 2  # a record longer than a chunk travels whole


def _next_line(descriptor: int, offset: int) -> int:
    """Return the start of the first line after `offset`, or `offset` if that is far."""
    return offset + os.pread(descriptor, CHUNK_BYTES, offset).find(b"\n") + 1


def end_of_lines(data: bytes, *, is_full: bool, is_final: bool, with_bar: bool = False) -> int:
    """Return how many bytes of `data` to send as lines of output; 0 means to wait.

    Args:
        data: The file from the present offset on.
        is_full: A chunk holds no more.
        is_final: The file grows no more.
        with_bar: A line ends at a carriage return too: what follows rewrites it.
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
    """Return where to cut output with bars below one another, so that the cursor is at the first.

    A line end with a carriage return leads to the next bar; it ends no line.
    """
    if are_sent:
        last = data.rfind(_UP) + len(_UP)
        return max([last, *(found.end() for found in _LINE_END.finditer(data, last))])
    second_bar = data.rfind(b"\n", 0, data.find(_UP))
    return data.rfind(b"\n", 0, max(0, second_bar)) + 1


def _end_of_characters(data: bytes) -> int:
    """Return where to cut so that no UTF-8 character is split."""
    for back in range(1, min(4, len(data) - 1) + 1):
        if data[-back] & 0b1100_0000 != 0b1000_0000:  # where a character begins
            is_whole = data[-back] < 0x80
            return len(data) if is_whole else len(data) - back
    return len(data)


def streams_of(run_dir: RunDir, allocation_id: str, world_size: int) -> list[Stream]:
    """Return the streams of a run, journals first."""
    return [
        Stream(
            allocation_id=allocation_id,
            name=f"{kind}-{rank}",
            path=path_of(rank),
            is_journal=kind == "journal",
        )
        for kind, path_of in (("journal", run_dir.journal), ("output", run_dir.output))
        for rank in range(world_size)
    ]


@cache
def _fallocate() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    function = getattr(library, "fallocate", None)  # Python has posix_fallocate only
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong]
    return function


def make_hole(path: Path, size_bytes: int) -> None:
    """Free the space of the file's first bytes, which read as zeros from now on. Linux only.

    Raises:
        OSError: The system or the file system cannot do that.
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
