"""When each rank arrived at an exchange: times in memory that the ranks of a machine share.

    word 0, 1, ...                      times of rank 0: exchange k is in word k % RING
    word RING, RING + 1, ...            times of rank 1
    a word                              nanoseconds since the page was made << 8 | lap of the ring

A rank writes its own words and reads those of all ranks after the exchange. A rank cannot be a lap
ahead and overwrite a word that another has still to read: it would have to complete an exchange
without the other. If a word is of another lap nevertheless (a rank has not written it, or the
reader is late), waiting and transfer of this exchange are not separated.

All processes of a machine have the same clock, two machines have not; so there is a page only if
all ranks are on one machine. The file is unlinked as soon as all ranks have opened it, so nothing
is left behind, however the ranks end.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import struct
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Protocol

import numpy

from det_jupyter.core.timings.intervals import UNKNOWN, Numbers

NO_NUMBER = -1  # in place of an exchange's number: its times are not shared
RING = 1 << 15
_WORD_BYTES = 8
_MEMORY = "/dev/shm"  # Linux: files there are in memory, not on a disk
_AFTER = struct.Struct("qq")  # behind the words: when it was made, and how many have opened it
_LAP_BITS = 8
_LAPS = (1 << _LAP_BITS) - 1  # 0 is a word that was never written


class Ranks(Protocol):
    """The ranks of a gang: a DistributedContext."""

    @property
    def size(self) -> int: ...
    @property
    def rank(self) -> int: ...
    @property
    def is_chief(self) -> bool: ...
    def allgather(self, value: Any) -> list[Any]: ...
    def broadcast(self, value: Any) -> Any: ...


class Arrivals:
    """The shared page, mapped by one rank from a file of `size` times RING words."""

    def __init__(self, file: int, rank: int, size: int, base: int) -> None:
        self._map = mmap.mmap(file, _WORD_BYTES * RING * size)
        self._words = memoryview(self._map).cast("Q")
        self._all = numpy.frombuffer(self._map, numpy.uint64).reshape(size, RING)
        self._offset = rank * RING
        self._base = base  # the page's beginning of time

    @classmethod
    def open(cls, distributed: Ranks) -> Arrivals | None:
        """Return the page of these ranks; None on several machines or without room. Collective."""
        if distributed.size == 1 or len(set(distributed.allgather(_machine()))) > 1:
            return None
        path = _create(distributed.size) if distributed.is_chief else ""
        path, base = distributed.broadcast((path, perf_counter_ns()))
        file = -1
        with suppress(OSError):
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC) if path else -1
        is_open = distributed.allgather(file >= 0)
        if distributed.is_chief and path:
            os.unlink(path)
        try:
            return cls(file, distributed.rank, distributed.size, base) if all(is_open) else None
        finally:
            if file >= 0:
                os.close(file)

    @classmethod
    def of_run(cls, path: Path, rank: int, size: int) -> Arrivals | None:
        """Return the page at this path, for ranks without a connection; None if the disk is full.

        The first rank to open it writes it, the last one unlinks it. `path` is in the run's
        folder.
        """
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            words = _WORD_BYTES * RING * size
            if os.fstat(file).st_size == 0:
                os.write(file, bytes(words) + _AFTER.pack(perf_counter_ns(), 0))
            base, num_open = _AFTER.unpack(os.pread(file, _AFTER.size, words))
            os.pwrite(file, _AFTER.pack(base, num_open + 1), words)
            if num_open + 1 == size:
                os.unlink(path)
            return cls(file, rank, size, base)
        except (OSError, struct.error):  # the disk is full
            return None
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # the mapping keeps a copy of the descriptor
            os.close(file)

    def write(self, exchange: int, at: int) -> None:
        """Store the time `at` at which this rank arrived at an exchange."""
        lap = exchange // RING % _LAPS + 1
        self._words[self._offset + exchange % RING] = at - self._base << _LAP_BITS | lap

    def last(self, exchanges: Numbers) -> Numbers:
        """Return when the last rank arrived at each exchange, or UNKNOWN if a time is missing."""
        words = self._all[:, exchanges % RING].astype(numpy.int64)
        laps = exchanges // RING % _LAPS + 1
        is_known = (words & _LAPS == laps).all(axis=0) & (exchanges != NO_NUMBER)
        return numpy.where(is_known, (words >> _LAP_BITS).max(axis=0) + self._base, UNKNOWN)


def _machine() -> str:
    """Return an identifier of this machine since its boot, the same for all its processes."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    return f"{socket.gethostname()} {uuid.getnode()}"


def _create(size: int) -> str:
    """Return the path of a new page; empty if it cannot be made.

    All of it is written, so that its memory is allocated: writing to a mapped page for which a
    full file system has no room would kill the rank (SIGBUS).
    """
    path = ""
    try:
        folder = _MEMORY if os.access(_MEMORY, os.W_OK) else None
        file, path = tempfile.mkstemp(prefix="det-jupyter-arrivals-", dir=folder)
        with open(file, "wb") as page:
            page.write(bytes(_WORD_BYTES * RING * size))
    except OSError:
        with suppress(OSError):
            os.unlink(path)
        return ""
    return path
