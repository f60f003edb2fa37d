"""The step page of a rank: what other ranks need to save its last step if it is killed.

    words 0, 1, 2     pid of the rank; its phase; the batches trained that it can save
    slots 0, 1        its state after the last optimizer step, and after the one before
    rows              its metrics of each of the last batches: numbers of 64 bits, the first is
                      the batches trained, the last the records
    buffers 0, 1      those of its models, beside the states of a slot

    slot              word: batches trained; word: length, 0 while it is written; the states of
                      its random generators

Ranks have equal weights after each step, so those that survive lack nothing else of a rank that
was killed. A rank writes a slot when it begins to exchange the gradients of a step. A rank that
has finished the exchange thus finds the states of all ranks after this step: the others are at
most one step ahead, or have begun the same exchange. The metrics are written at the end of a
batch, and may lack the last one.

The page outlives the rank. Words are of 64 bits, unsigned, in the order of the machine.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from enum import IntEnum
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, SupportsFloat

from det_jupyter.contract.host.processes import birth_of

_WORD = struct.Struct("=Q")
_HEAD = struct.Struct("=QQ")
_PID, _PHASE, _STEPS = 0, 8, 16
_SLOTS_AT, _SLOT_BYTES = 4096, 16384
_FEWEST_ROWS = 8
STATES_BYTES = _SLOT_BYTES - _HEAD.size  # the most that a slot holds
_ROWS_AT, _ROWS_BYTES = _SLOTS_AT + 2 * _SLOT_BYTES, 65536
SAVE_S = 120.0  # how long a rank that saves the last step is waited for
PAGE_BYTES = _ROWS_AT + _ROWS_BYTES  # without buffers


class StepSlot(NamedTuple):
    """Memory of a page for the state after one step: `head` is the batches trained, and length."""

    head: memoryview
    states: memoryview
    buffers: memoryview


class Phase(IntEnum):
    """What a rank does.

    TRAINING: it trains, and has not noticed that another rank has ended.
    FAILED: it has raised an error of its own: the others save nothing.
    READY: it has lost another rank, and can save the step that its page names.
    SAVING: it saves that step, whatever step the others could save.
    DONE: it has saved nothing, and will not.
    SAVED: it has saved that step.
    """

    TRAINING = 0
    FAILED = 1
    READY = 2
    DONE = 3
    SAVED = 4
    SAVING = 5


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
        if len(self._map) < PAGE_BYTES:
            raise ValueError(f"{path} is not a step page")

    @classmethod
    def create(cls, path: Path, pid: int, buffers_bytes: int = 0) -> StepPage:
        """Write the page of a rank that begins, and return it mapped."""
        path.write_bytes(_WORD.pack(pid).ljust(PAGE_BYTES + 2 * buffers_bytes, b"\0"))
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

    def slots(self) -> list[StepSlot]:
        """Return the two slots, to be written: first 0 as the length, the states, then both."""
        view, found = memoryview(self._map), []
        size = (len(view) - PAGE_BYTES) // 2
        for index in (0, 1):
            begin, buffers = _SLOTS_AT + index * _SLOT_BYTES, PAGE_BYTES + index * size
            states = begin + _HEAD.size
            found.append(
                StepSlot(
                    view[begin:states].cast("Q"),
                    view[states : begin + _SLOT_BYTES],
                    view[buffers : buffers + size],
                )
            )
        return found

    def slot_of(self, steps_completed: int) -> StepSlot | None:
        """Return the slot with the state after these batches; None if the page has none."""
        for slot in self.slots():
            steps, length = slot.head
            if steps == steps_completed and 0 < length <= STATES_BYTES:
                return slot
        return None

    def slot_for(self, steps_completed: int) -> StepSlot:
        """Return the slot of the state after these batches, or else the older one."""
        return min(self.slots(), key=lambda one: (one.head[0] != steps_completed, one.head[0]))

    def note_row(
        self, steps_completed: int, metrics: Sequence[SupportsFloat], records: SupportsFloat
    ) -> None:
        """Write the metrics and records of the last batch; if they are too many, none of them."""
        row, num_rows = _rows(len(metrics) + 1)
        if num_rows >= _FEWEST_ROWS:
            at = _ROWS_AT + steps_completed % num_rows * row.size
            row.pack_into(self._map, at, steps_completed, *metrics, records)

    def rows(self, first: int, last: int, num_numbers: int) -> list[tuple[float, ...] | None]:
        """Return the numbers of each of these batches; None for a batch that is not there."""
        (layout, num_rows), rows = _rows(num_numbers), list[tuple[float, ...] | None]()
        if num_rows < _FEWEST_ROWS:
            return [None] * (last - first + 1)
        for steps in range(first, last + 1):
            at = _ROWS_AT + steps % num_rows * layout.size
            label, *row = layout.unpack_from(self._map, at)
            rows.append(tuple(row) if label == steps else None)
        return rows

    def close(self) -> None:
        """Unmap the page."""
        with suppress(BufferError):  # the rank still writes its slots
            self._map.close()

    def _word(self, offset: int) -> int:
        value: int = _WORD.unpack_from(self._map, offset)[0]
        return value


@lru_cache
def _rows(num_numbers: int) -> tuple[struct.Struct, int]:
    """Return the layout of rows with these numbers, and how many rows there are."""
    layout = struct.Struct(f"={num_numbers + 1}d")
    return layout, _ROWS_BYTES // layout.size


def phases(pages: Iterable[Path]) -> list[Phase]:
    """Return the phases of the ranks of these pages that live, or have saved."""
    found = []
    for path in pages:
        with suppress(OSError, ValueError), closing(StepPage(path)) as page:
            if page.phase is Phase.SAVED or page.is_alive:
                found.append(page.phase)
    return found
