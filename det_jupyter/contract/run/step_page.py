"""The step page of a rank: what other ranks need to save its last step if it is killed.

    words 0, 1, 2     pid of the rank; its phase; the batches trained that it can save
    slots 0, 1        states of its random generators after a batch: after even batches in slot 0,
                      after odd ones in slot 1
    rows              its metrics of each of the last batches: numbers of 64 bits, the first is
                      the batches trained, the last the records

    slot              word: batches trained, 0 while it is written; word: length; the states

Ranks have equal weights after each batch, so those that survive lack nothing else of a rank that
was killed. A rank writes the states when it begins to exchange the gradients of a batch. A rank
that has finished the exchange thus finds the states of all ranks after this batch: the others are
at most one batch ahead, or have begun the same exchange. The metrics are written at the end of a
batch, and may lack the last one.

The page outlives the rank. Words are little-endian, unsigned, of 64 bits.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from enum import IntEnum
from pathlib import Path

from det_jupyter.contract.host.processes import birth_of

_WORD = struct.Struct("<Q")
_HEAD = struct.Struct("<QQ")
_PID, _PHASE, _STEPS = 0, 8, 16
_SLOTS_AT, _SLOT_BYTES = 4096, 16384
STATES_BYTES = _SLOT_BYTES - _HEAD.size  # the most that a slot holds
_ROWS_AT, _ROWS_BYTES = _SLOTS_AT + 2 * _SLOT_BYTES, 65536
PAGE_BYTES = _ROWS_AT + _ROWS_BYTES


class Phase(IntEnum):
    """What a rank does.

    TRAINING: it trains, and has not noticed that another rank has ended.
    FAILED: it has raised an error of its own: the others save nothing.
    READY: it has lost another rank, and can save the step that its page names.
    DONE: it has saved nothing, and will not.
    SAVED: it has saved that step.
    """

    TRAINING = 0
    FAILED = 1
    READY = 2
    DONE = 3
    SAVED = 4


class StepPage:
    """The mapped step page of a rank.

    Args:
        path: Its file; None: new memory, for what a rank on another computer sends.

    Raises:
        OSError: There is no such file.
        ValueError: It is no step page.
    """

    def __init__(self, path: Path | None) -> None:
        if path is None:
            self._map = mmap.mmap(-1, PAGE_BYTES)
            return
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        if len(self._map) != PAGE_BYTES:
            raise ValueError(f"{path} is not a step page")

    @classmethod
    def create(cls, path: Path, pid: int) -> StepPage:
        """Write the page of a rank that begins, and return it mapped."""
        path.write_bytes(_WORD.pack(pid).ljust(PAGE_BYTES, b"\0"))
        return cls(path)

    @property
    def is_alive(self) -> bool:
        """Whether the rank's process exists on this computer."""
        pid = self._word(_PID)
        return pid != 0 and birth_of(pid) is not None

    @property
    def phase(self) -> Phase:
        """What the rank does, or did when it ended."""
        return Phase(self._word(_PHASE))

    @property
    def steps_completed(self) -> int:
        """The batches trained that the rank can save, if it is READY."""
        return self._word(_STEPS)

    def set_phase(self, phase: Phase, steps_completed: int = 0) -> None:
        """Set what the rank does."""
        _WORD.pack_into(self._map, _STEPS, steps_completed)
        _WORD.pack_into(self._map, _PHASE, phase)

    def slots(self) -> list[memoryview]:
        """Return the two slots' states, to be written between two `note_slot`."""
        ends = [(_slot_at(steps) + _HEAD.size, _slot_at(steps) + _SLOT_BYTES) for steps in (0, 1)]
        return [memoryview(self._map)[begin:end] for begin, end in ends]

    def note_slot(self, steps_completed: int, length: int) -> None:
        """Note that the slot for these batches has states of this length; 0: no whole ones."""
        head = (steps_completed, length) if length else (0, 0)
        _HEAD.pack_into(self._map, _slot_at(steps_completed), *head)

    def states(self, steps_completed: int) -> bytes | None:
        """Return the states after these batches; None if the page does not have them."""
        at = _slot_at(steps_completed)
        steps, length = _HEAD.unpack_from(self._map, at)
        if steps != steps_completed or not 0 < length <= STATES_BYTES:
            return None
        begin = at + _HEAD.size
        return self._map[begin : begin + length]

    def note_row(self, steps_completed: int, numbers: Sequence[float]) -> None:
        """Write the metrics and records of the last batch; if they are too many, none of them."""
        size = 8 * (len(numbers) + 1)
        if size <= _ROWS_BYTES // 8:  # room for eight batches at least
            at = _ROWS_AT + steps_completed % (_ROWS_BYTES // size) * size
            struct.pack_into(f"<{len(numbers) + 1}d", self._map, at, steps_completed, *numbers)

    def rows(self, first: int, last: int, num_numbers: int) -> list[tuple[float, ...] | None]:
        """Return the numbers of each of these batches; None for a batch that is not there."""
        size, rows = 8 * (num_numbers + 1), list[tuple[float, ...] | None]()
        if size > _ROWS_BYTES // 8:
            return [None] * (last - first + 1)
        for steps in range(first, last + 1):
            at = _ROWS_AT + steps % (_ROWS_BYTES // size) * size
            label, *row = struct.unpack_from(f"<{num_numbers + 1}d", self._map, at)
            rows.append(tuple(row) if label == steps else None)
        return rows

    def close(self) -> None:
        """Unmap the page."""
        with suppress(BufferError):  # the rank still writes its slots
            self._map.close()

    def _word(self, offset: int) -> int:
        value: int = _WORD.unpack_from(self._map, offset)[0]
        return value


def _slot_at(steps_completed: int) -> int:
    return _SLOTS_AT + steps_completed % 2 * _SLOT_BYTES


def phases(pages: Iterable[Path]) -> list[Phase]:
    """Return the phases of the ranks of these pages that live; [] if there are no pages."""
    found = []
    for path in pages:
        with suppress(OSError, ValueError), closing(StepPage(path)) as page:
            if page.is_alive:
                found.append(page.phase)
    return found
