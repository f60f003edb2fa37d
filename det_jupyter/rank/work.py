"""The call of a function of the notebook, as the work of a rank.

Every rank of the gang calls the function, which gets its context from `core.init()`. The reports
of the function say how far it is; the first reported step starts the rank's kernel. When the
function returns, the trial is completed, unless `context.preempt.should_preempt()` was true: then
it is called again when slots are free, with its newest checkpoint in
`context.info.latest_checkpoint`.
"""

from __future__ import annotations

import sys
import threading
from types import FrameType, FunctionType
from typing import Any, Literal

from det_jupyter.contract.trial.rank_arguments import call
from det_jupyter.core import Context, StepCounter
from det_jupyter.pytorch.training.events import Reason

FunctionReason = Reason | Literal["invalid_hp"]


class FunctionRun:
    """One call of the user's function, on one rank of its gang."""

    trial = None  # that has a code of its own

    def __init__(self, function: FunctionType, context: Context, counter: StepCounter) -> None:
        self._function = function
        self._context = context
        self._counter = counter

    @property
    def steps_completed(self) -> int:
        """Steps of the last report."""
        return self._counter.steps_completed

    @property
    def trained(self) -> int:
        """Steps in this run; on other ranks than the chief at least 1.

        Only the chief has to report, so another rank may have trained without a report.
        """
        steps = self.steps_completed - self._counter.first
        return steps if self._context.distributed.is_chief else max(1, steps)

    def run(self) -> FunctionReason:
        """Call the function. Collective: waits until it has returned on all ranks."""
        context, info = self._context, self._context.info
        hparams = {} if info is None else dict(info.hparams)
        values = {"core_context": context, "context": context, "info": info, "hparams": hparams}
        call(self._function, values)
        self._context.profiler.flush()
        self._context.distributed.barrier()
        early = self._context.train.early_exit  # what the chief has reported counts
        if self._context.train.is_open:  # else its `with` block has ended, and has warned
            self._context.warn_of_an_early_end()
        if self._context.preempt.is_acknowledged:
            return early or "preempted"
        searcher = self._context.searcher
        while searcher.was_extended():  # the function decides when it is done
            pass
        if early is None:
            searcher.report_reached(self.steps_completed)
        return early or "completed"

    def live(self) -> dict[str, Any]:
        found = {"context": self._context, "steps_completed": self.steps_completed}
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        return found | _variables_of(self._function, frame)


def _variables_of(function: FunctionType, frame: FrameType | None) -> dict[str, Any]:
    while frame is not None:
        if frame.f_code is function.__code__:
            return dict(frame.f_locals)
        frame = frame.f_back
    return {}
