"""Cuts what ranks write into chunks for the master. Knows files and offsets, nothing of gangs.

The master says how many bytes of each file it has; the agent goes on from there and from nowhere
else, so whoever is killed in between, each byte arrives exactly once.

    journal    whole records only: the torn last line of a dead rank is never sent, and of a record
               that is too long for a request of ours, nothing that could be read as one
    output     whole lines too, except for a line longer than a chunk, and for a last line without
               an end: these are sent as lines of their own

Output is bounded. Of what a rank prints faster than it can be sent, a part is left out: a line
says how much. And of a file that has been sent, all but the newest part is given back to the file
system while it is written (a hole, where the system can make one): its size stays, its use does
not grow.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from det_jupyter.agent.runs.holes import make_hole
from det_jupyter.system.rundir import RunDir
from det_jupyter.wire import Chunk

logger = logging.getLogger(__name__)

CHUNK_BYTES = 256 * 1024
MAX_BACKLOG_BYTES = 64 * 1024 * 1024  # of output that is not sent yet
_KEPT_BACKLOG_BYTES = 32 * 1024 * 1024  # when there is more: the newest
_KEPT_BYTES = 16 * 1024 * 1024  # of output that was sent: a master may ask for it again
_HOLE_BYTES = 8 * 1024 * 1024  # the least that a hole is made for
MAX_RECORD_BYTES = (
    8 * 1024 * 1024
)  # a request may be eight times as large (master/http/answers.py)


@dataclass(slots=True, kw_only=True)
class Stream:
    """One file of a rank, shipped as far as `offset`.

    Args:
        unreadable_since: Monotonic time of the first of the present failures to read it.
    """

    allocation_id: str
    name: str
    path: Path
    is_journal: bool
    offset: int = 0
    unreadable_since: float | None = None
    freed: int = 0  # up to there the file is a hole

    def chunks(self, *, is_final: bool) -> Iterator[Chunk]:
        """Yield what can be sent of the file beyond `offset`, which stays where it is.

        Args:
            is_final: The rank is gone, the file will not grow any more.

        Raises:
            OSError: It is there and cannot be read.
        """
        offset = self.offset
        try:
            size = os.stat(self.path).st_size
            if size <= offset:
                return
            opened = self.path.open("rb")
        except FileNotFoundError:  # not written yet, or taken away
            return
        with opened as file:
            if not self.is_journal and size - offset > MAX_BACKLOG_BYTES:
                end = _next_line(file.fileno(), size - _KEPT_BACKLOG_BYTES)
                yield self._gap(offset, end)
                offset = end
            while offset < size and (part := self._read(file.fileno(), offset, is_final)):
                size_bytes, text = part
                yield Chunk(
                    allocation_id=self.allocation_id,
                    stream=self.name,
                    offset=offset,
                    size_bytes=size_bytes,
                    text=text,
                )
                offset += size_bytes

    def _gap(self, offset: int, end: int) -> Chunk:
        """Return what stands for bytes that are left out."""
        text = (
            f"… {end - offset:,} bytes that this rank printed are left out here: it printed them "
            "faster than they could be stored\n"
        )
        return Chunk(
            allocation_id=self.allocation_id,
            stream=self.name,
            offset=offset,
            size_bytes=end - offset,
            text=text,
        )

    def free(self) -> None:
        """Give back what the file uses for output that was sent long ago."""
        end = self.offset - _KEPT_BYTES
        if not self.is_journal and end - self.freed >= _HOLE_BYTES:
            with suppress(OSError):  # the file system cannot: then the file is as large as it is
                make_hole(self.path, end)
            self.freed = end

    def _read(self, descriptor: int, offset: int, is_final: bool) -> tuple[int, str] | None:
        limit = CHUNK_BYTES
        while True:
            data = os.pread(descriptor, limit, offset)
            is_full = len(data) == limit
            if self.is_journal:
                end = data.rfind(b"\n") + 1
            else:
                end = end_of_lines(data, is_full=is_full, is_final=is_final)
            if end:
                text = data[:end].decode("utf-8", errors="replace")
                return end, text if text.endswith("\n") else text + "\n"
            if not is_full:
                return None
            if limit >= MAX_RECORD_BYTES:
                logger.error("%s: a record of over %d bytes is skipped", self.path, limit)
                return limit, "\n"  # its rest follows as a line that is no record
            limit *= 2  # a record longer than a chunk travels whole


def _next_line(descriptor: int, offset: int) -> int:
    """Return where the first line after `offset` begins, if that is not far."""
    return offset + os.pread(descriptor, CHUNK_BYTES, offset).find(b"\n") + 1


def end_of_lines(data: bytes, *, is_full: bool, is_final: bool) -> int:
    """Return how many bytes of `data` to send as lines of output; 0 to wait for more.

    Args:
        data: What the file holds from the present offset on.
        is_full: There is no room for more.
        is_final: There will not be more.
    """
    if end := data.rfind(b"\n") + 1:
        return end
    if is_full:
        return _end_of_characters(data)
    return len(data) if is_final else 0


def _end_of_characters(data: bytes) -> int:
    """Return where to cut without parting the bytes of a UTF-8 character."""
    for back in range(1, min(4, len(data) - 1) + 1):
        if data[-back] & 0b1100_0000 != 0b1000_0000:  # where a character begins
            is_whole = data[-back] < 0x80
            return len(data) if is_whole else len(data) - back
    return len(data)


def streams_of(run_dir: RunDir, allocation_id: str, world_size: int) -> list[Stream]:
    """Return the streams of a run, journals first."""

    def stream(name: str, path: Path, is_journal: bool) -> Stream:
        return Stream(allocation_id=allocation_id, name=name, path=path, is_journal=is_journal)

    ranks = range(world_size)
    return [
        *(stream(f"journal-{rank}", run_dir.journal(rank), True) for rank in ranks),
        *(stream(f"output-{rank}", run_dir.output(rank), False) for rank in ranks),
    ]
