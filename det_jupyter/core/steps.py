"""Counts the steps of a run that has no loop of ours: those that the user's code reports."""

from __future__ import annotations

import time
from collections.abc import Callable

from det_jupyter.core.train import RecordSink
from det_jupyter.records import FirstStep


class StepCounter:
    """Counts the steps that a function has reported in this run.

    Args:
        first: Steps completed before this run.
        journal: The chief's; None on the other ranks.
        on_first_step: Called at the first step of this run.
        note_batch: Called with the number of batches begun, as far as known.
    """

    def __init__(
        self,
        first: int,
        journal: RecordSink | None,
        on_first_step: Callable[[], None],
        note_batch: Callable[[int], object],
    ) -> None:
        self._note_batch = note_batch
        self.first = first
        self.steps_completed = first
        self._journal = journal
        self._on_first_step = on_first_step
        self._has_stepped = False

    def note(self, steps_completed: int) -> None:
        """Note the steps completed."""
        self.steps_completed = steps_completed
        self._note_batch(steps_completed + 1)
        if self._has_stepped or steps_completed <= self.first:
            return
        self._has_stepped = True
        if self._journal is not None:
            self._journal.write(FirstStep(at=time.time(), steps_completed=steps_completed))
        self._on_first_step()
