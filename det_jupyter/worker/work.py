"""What a rank does: it trains a trial, or calls a function of the notebook.

Every rank of the gang calls the function, and finds its own context there (`core.init()`). How far
it is, is what it reports. The first step it tells of starts the rank's kernel; the last one stands
in the chief's last word. Returning is completing, unless the ranks were told that they shall leave
(`context.preempt.should_preempt()`): then the function is called again when there is room, and
finds its newest checkpoint in `context.info.latest_checkpoint`.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, FunctionType
from typing import Any, Protocol

from det_jupyter.core import Context, RecordSink
from det_jupyter.pytorch.training.events import Reason
from det_jupyter.records import FirstStep


class Work(Protocol):
    """What a rank does: a trial's training, or the call of a function.

    Attributes:
        trial: The user's object, if there is one by now.
        steps_completed: How far it is, since the beginning of the trial.
        trained: How far it has come in this run.
    """

    @property
    def trial(self) -> Any: ...
    @property
    def steps_completed(self) -> int: ...
    @property
    def trained(self) -> int: ...
    def live(self) -> dict[str, Any]:
        """Return what there is to look at, by the names a person would use."""


class StepCounter:
    """How far a function has told to be in this run.

    Args:
        first: Where it goes on from.
        journal: The chief's; None on the other ranks.
        on_first_step: Called when it comes further for the first time.
        note_batch: Told how many batches have been begun, as far as that is known.
    """

    def __init__(
        self,
        first: int,
        journal: RecordSink | None,
        on_first_step: Callable[[], None],
        note_batch: Callable[[int], object] = bool,
    ) -> None:
        self._note_batch = note_batch
        self.first = first
        self.steps_completed = first
        self._journal = journal
        self._on_first_step = on_first_step
        self._has_stepped = False

    def note(self, steps_completed: int) -> None:
        """Note how far this rank is now."""
        self.steps_completed = steps_completed
        self._note_batch(steps_completed + 1)
        if self._has_stepped or steps_completed <= self.first:
            return
        self._has_stepped = True
        if self._journal is not None:
            self._journal.write(FirstStep(at=time.time(), steps_completed=steps_completed))
        self._on_first_step()


class FunctionRun:
    """One call of the user's function, on one rank of its gang."""

    trial = None  # as a trial's run has; a function has nothing that a mistake could be found in

    def __init__(self, function: FunctionType, context: Context, counter: StepCounter) -> None:
        self._function = function
        self._context = context
        self._counter = counter

    @property
    def steps_completed(self) -> int:
        """What was last reported."""
        return self._counter.steps_completed

    @property
    def trained(self) -> int:
        """Steps in this run; one at least where they cannot be known.

        Only the chief has to report. Another rank that fails may have come far.
        """
        steps = self.steps_completed - self._counter.first
        return steps if self._context.distributed.is_chief else max(1, steps)

    def run(self) -> Reason:
        """Call the function. Collective: no rank leaves before the last one has returned."""
        self._function()
        self._context.distributed.barrier()
        if self._context.preempt.is_acknowledged:
            return "preempted"
        searcher = self._context.searcher
        while searcher.was_extended():  # the function itself says when it is done
            pass
        searcher.report_reached(self.steps_completed)
        return "completed"

    def live(self) -> dict[str, Any]:
        """Return the function's variables as they are now."""
        found = {"context": self._context, "steps_completed": self.steps_completed}
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        return found | _variables_of(self._function, frame)


def _variables_of(function: FunctionType, frame: FrameType | None) -> dict[str, Any]:
    while frame is not None:
        if frame.f_code is function.__code__:
            return dict(frame.f_locals)
        frame = frame.f_back
    return {}
