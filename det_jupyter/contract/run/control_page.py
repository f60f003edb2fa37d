"""The control page: signals from the agent to a running gang, as words in a shared file.

    word 0      1        2       3       4             5        6       8, 9, ...  516, 517, ...
         magic  preempt  target  orders  acknowledged  checked  saving  batch of   exchange of
                                                                        rank 0, 1  rank 0, 1

    word    1024                         1025                          1026
            a rank waits for room for    the chief waits for room      how many bytes that
            records, since (ms, UTC)     for a checkpoint, since       checkpoint needs

    word    1027                            1028                         1029
            the chief waits for uploads     ranks on other computers     a rank here
            of earlier checkpoints, since   have ended, or are cut off   was killed

    word    1030
            a process writes a checkpoint: twice its pid, plus one once the files are written

Words are little-endian, unsigned, of 64 bits.

Reading a word is a memory access, so a training loop can read it after every batch. Only the
chief reads it (`preempt`: the first rank of each computer), and broadcasts it, so that all ranks
stop at the same batch. Signals only increase
during a run; the next run has a new page. The words about room are 0 while nothing waits; the page
is on the disk already, so a rank can write them when the disk is full. `target` is twice the
amount of training in the unit of the run's plan, plus one if the trial ends there; 0 means the
target of the plan. `orders` is the id of the last order in the file of orders, which is written
before the word.

A rank that stops because of `preempt` sets `acknowledged`: from this word the agent concludes that
the trial continues later, even if it gets only the exit code of a launcher. `checked` is when the
trial's code last read `preempt`, and `saving` when it began to save its state because of it, both
in milliseconds since the epoch. Each rank also writes two words of its own: the number of batches
that it has begun, and that of the last one whose gradients it has begun to exchange, from where it
waits for the other ranks. The page outlives the rank, so the agent can read in which batch a rank
was killed.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

_WORD = struct.Struct("<Q")
_MAGIC = 0x6465_7463_7472_6C31  # "detctrl1"
_INDEX = {"preempt": 1}
_TARGET = 2
_ORDERS = 3
_ACKNOWLEDGED = 4
_CHECKED = 5
_SAVING = 6
_NEEDED = 1026
_PARTED = 1028
_KILLED = 1029
_DRAFT = 1030
_FIRST_RANK = 8
_NUM_RANKS = 508  # ranks that have words
_FIRST_EXCHANGE = _FIRST_RANK + _NUM_RANKS
PAGE_BYTES = 12288

Signal = Literal["preempt"]
Writing = Literal["records", "checkpoint", "uploads"]


class WaitForRoom(NamedTuple):
    """A rank waits for room on a disk, or for uploads: since when, and how much it needs."""

    writing: Writing
    since: float  # UTC seconds
    needs_bytes: int


class OpenDraft(NamedTuple):
    """A checkpoint that a process has begun and not finished; `is_written`: but for its end."""

    pid: int
    is_written: bool = False


_WAITS: dict[Writing, int] = {"records": 1024, "checkpoint": 1025, "uploads": 1027}


def create_page(path: Path) -> None:
    """Write a new page, without any signal."""
    path.write_bytes(_WORD.pack(_MAGIC).ljust(PAGE_BYTES, b"\0"))


class ControlPage:
    """A mapped control page."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        if len(self._map) != PAGE_BYTES or self._word(0) != _MAGIC:
            raise ValueError(f"{path} is not a control page")

    def _word(self, index: int) -> int:
        value: int = _WORD.unpack_from(self._map, index * _WORD.size)[0]
        return value

    def raise_signal(self, signal: Signal) -> None:
        """Raise a signal. Raising it twice is the same as once."""
        _WORD.pack_into(self._map, _INDEX[signal] * _WORD.size, 1)

    def is_raised(self, signal: Signal) -> bool:
        """Return whether the signal was raised."""
        return self._word(_INDEX[signal]) == 1

    def check(self, signal: Signal) -> bool:
        """Return whether the signal was raised, and record the time as that of the last check."""
        _WORD.pack_into(self._map, _CHECKED * _WORD.size, time.time_ns() // 1_000_000)
        return self.is_raised(signal)

    def checked_at(self) -> float | None:
        """Return when the trial's code last called `check`, UTC seconds; None: never."""
        return self._word(_CHECKED) / 1000 or None

    def note_saving(self) -> None:
        """Record that the ranks begin to save their state because of a signal."""
        if not self._word(_SAVING):
            _WORD.pack_into(self._map, _SAVING * _WORD.size, time.time_ns() // 1_000_000)

    def saving_since(self) -> float | None:
        """Return when the ranks began to save their state, UTC seconds; None: they have not."""
        return self._word(_SAVING) / 1000 or None

    def extend(self, amount: int, *, is_last: bool) -> None:
        """Set a farther target. One that is not farther changes nothing."""
        word = 2 * amount + is_last
        if word > self._word(_TARGET):
            _WORD.pack_into(self._map, _TARGET * _WORD.size, word)

    def target(self) -> tuple[int, bool] | None:
        """Return the target's amount, and whether the trial ends there; None if none was set."""
        word = self._word(_TARGET)
        return (word >> 1, bool(word & 1)) if word else None

    def announce_orders(self, last_id: int) -> None:
        """Set the id of the last order in the file of orders."""
        if last_id > self.last_order():
            _WORD.pack_into(self._map, _ORDERS * _WORD.size, last_id)

    def last_order(self) -> int:
        """Return the id of the last order; 0 if there is none."""
        return self._word(_ORDERS)

    def acknowledge(self) -> None:
        """Record that a rank stops because of `preempt`."""
        _WORD.pack_into(self._map, _ACKNOWLEDGED * _WORD.size, 1)

    def is_acknowledged(self) -> bool:
        """Return whether a rank has stopped, or is about to, because of `preempt`."""
        return self._word(_ACKNOWLEDGED) == 1

    def note_parted(self) -> None:
        """Record that ranks on other computers have ended, or cannot be reached any more."""
        _WORD.pack_into(self._map, _PARTED * _WORD.size, 1)

    def is_parted(self) -> bool:
        """Return whether ranks on other computers have ended, or cannot be reached any more."""
        return self._word(_PARTED) == 1

    def note_killed(self) -> None:
        """Record that a rank on this computer was killed."""
        _WORD.pack_into(self._map, _KILLED * _WORD.size, 1)

    def is_killed(self) -> bool:
        """Return whether a rank on this computer was killed: others may wait for it."""
        return self._word(_KILLED) == 1

    def note_draft(self, draft: OpenDraft | None) -> None:
        """Record the checkpoint that this process writes; None: it has finished it."""
        _WORD.pack_into(self._map, _DRAFT * _WORD.size, 2 * draft[0] + draft[1] if draft else 0)

    def draft(self) -> OpenDraft | None:
        """Return the checkpoint that is being written; None: there is none."""
        word = self._word(_DRAFT)
        return OpenDraft(word >> 1, bool(word & 1)) if word else None

    def note_wait(self, writing: Writing, since: float, needs_bytes: int = 0) -> None:
        """Record since when this rank waits for room or uploads (UTC seconds; 0.0: not)."""
        _WORD.pack_into(self._map, _WAITS[writing] * _WORD.size, int(1000 * since))
        if writing == "checkpoint":
            _WORD.pack_into(self._map, _NEEDED * _WORD.size, needs_bytes)

    def wait_for_room(self) -> WaitForRoom | None:
        """Return what a rank waits for. If both records and a checkpoint wait, return the records.

        Records that wait stop the training.
        """
        for writing, index in _WAITS.items():
            if since_ms := self._word(index):
                needs = self._word(_NEEDED) if writing == "checkpoint" else 0
                return WaitForRoom(writing, since_ms / 1000, needs)
        return None

    def batch_writer(self, rank: int) -> Callable[[int], object]:
        """Return a function that writes the number of batches that the rank has begun.

        [m] It takes 0.1 µs. It does nothing for ranks beyond the end of the page.
        """
        return self._writer(_FIRST_RANK, rank)

    def exchange_writer(self, rank: int) -> Callable[[int], object]:
        """Return a function that writes the number of batches whose exchange the rank has begun.

        It does nothing for ranks beyond the end of the page.
        """
        return self._writer(_FIRST_EXCHANGE, rank)

    def _writer(self, first: int, rank: int) -> Callable[[int], object]:
        if rank >= _NUM_RANKS:
            return bool
        return partial(_WORD.pack_into, self._map, (first + rank) * _WORD.size)

    def is_exchanging(self, rank: int) -> bool:
        """Return whether a rank has begun the exchange of the last batch that it has begun."""
        if rank >= _NUM_RANKS:
            return False
        return 0 < self._word(_FIRST_RANK + rank) == self._word(_FIRST_EXCHANGE + rank)

    def batch_of(self, rank: int) -> int | None:
        """Return the index of the last batch that this rank has begun; None if unknown."""
        word = self._word(_FIRST_RANK + rank) if rank < _NUM_RANKS else 0
        return word - 1 if word else None

    def close(self) -> None:
        """Unmap the page."""
        self._map.close()
