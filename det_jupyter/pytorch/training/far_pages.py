"""The step pages of ranks on other computers, received from them before each optimizer steps.

    before a step    every rank sends its generators' states after this batch, and its metrics of
                     the batches before. A rank that has received those of all ranks may step; one
                     that has not, since another rank has ended, has those after the batch before.
                     With sharded models it is after the step, with their copies (shard_copies.py)
    after an event   the same, since events may draw numbers

So the ranks of each computer have what the state after their last batch needs, and no message can
be late. [m] It takes as long as an all-reduce of 400 KB (0.5 ms, over the loopback of a busy
computer).

A computer that is cut off, or switched off, closes no connection: ranks that wait for it would
wait for ever. When its agent has noticed that, a thread of the rank shuts the rank's connections
to ranks there, so that the collective raises.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence, Set
from contextlib import suppress
from itertools import chain

import torch
from pydantic import TypeAdapter

from det_jupyter.contract.host.own_threads import start_own
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.run.control_page import ControlPage
from det_jupyter.contract.run.step_page import StepPage
from det_jupyter.pytorch.training.rank_connections import End, shut_connections

# Batches trained, bytes of the states, rows, and their numbers: batches trained, metrics, records.
_HEAD = struct.Struct("<QQQQ")
_MESSAGE_BYTES = 16384
_MOST_NUMBERS = 64  # metrics and records in a row that is sent
_NUMBER_BYTES = 8
_LOOK_S = 0.2
_RANKS = TypeAdapter(list[int])


class FarPages:
    """Copies, in memory, of the pages of ranks on other computers.

    Args:
        page: This rank's page.
        folder: The run's folder, which has the ranks that are here.
        ends: The ends of each rank's connections, by rank.
    """

    def __init__(self, page: StepPage, folder: RunDir, ends: Sequence[Set[End]]) -> None:
        here = _RANKS.validate_json(folder.part.read_bytes())
        self.pages = {rank: StepPage(None) for rank in range(len(ends)) if rank not in here}
        self._ends = {end for rank in self.pages for end in ends[rank]}
        self._own = page
        self._rows: list[list[float]] = []  # since the last exchange: of one window of batches
        self._sent = torch.zeros(_MESSAGE_BYTES, dtype=torch.uint8)
        self._received = [torch.zeros_like(self._sent) for _ in ends]
        self._is_over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, args=(folder,), name="far-pages")
        start_own(self._watcher)

    def note_row(self, steps_completed: int, numbers: Sequence[float]) -> None:
        """Keep the metrics of the last batch, which are sent with the next exchange."""
        if len(numbers) <= _MOST_NUMBERS:
            self._rows.append([steps_completed, *numbers])

    def exchange(self, steps_completed: int) -> None:
        """Send the states of this rank's page after these batches; store those of the others."""
        slot = self._own.slot_of(steps_completed)
        states = b"" if slot is None else slot.states[: slot.head[1]].tobytes()
        width = max(map(len, self._rows), default=1)
        num_rows = (_MESSAGE_BYTES - _HEAD.size - len(states)) // (_NUMBER_BYTES * width)
        rows = [row for row in self._rows if len(row) == width][-num_rows:]
        self._rows = []
        message = _HEAD.pack(steps_completed, len(states), len(rows), width)
        message += struct.pack(f"<{len(rows) * width}d", *chain.from_iterable(rows)) + states
        if len(message) <= _MESSAGE_BYTES:
            self._sent[: len(message)] = torch.frombuffer(bytearray(message), dtype=torch.uint8)
        else:  # no generator has such states today
            self._sent[: _HEAD.size] = 0
        torch.distributed.all_gather(self._received, self._sent)
        for rank, page in self.pages.items():
            _store(page, self._received[rank].numpy().tobytes())

    def close(self) -> None:
        """Stop the thread: when this returns, it shuts no connection any more."""
        self._is_over.set()
        self._watcher.join()

    def _watch(self, folder: RunDir) -> None:
        with suppress(OSError, ValueError):  # the run's folder was removed
            page = ControlPage(folder.control)
            while not page.is_parted():
                if self._is_over.wait(_LOOK_S):
                    page.close()
                    return
            shut_connections(self._ends)


def _store(page: StepPage, message: bytes) -> None:
    steps, length, num_rows, width = _HEAD.unpack_from(message)
    begin = _HEAD.size + _NUMBER_BYTES * num_rows * width
    row = struct.Struct(f"<{width}d")
    for at in range(_HEAD.size, begin, row.size or 1):
        row_steps, *metrics, records = row.unpack_from(message, at)
        page.note_row(int(row_steps), metrics, records)
    head, states, _ = page.slot_for(steps)
    head[1] = 0
    states[:length] = message[begin : begin + length]
    head[0], head[1] = steps, length
