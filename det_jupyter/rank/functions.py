"""The work of a rank whose entrypoint is a function.

A function of the notebook is called by every rank of the gang, with the hyperparameters and the
context that it has parameters for. Its reports have the steps completed; the first one starts the
rank's kernel. When it returns, the trial is completed, unless `context.preempt.should_preempt()`
was true: then it is called again when slots are free, with its newest checkpoint in
`context.info.latest_checkpoint`. A function that does not report needs no context:

    return loss                     the validation of the trial: a number, or a dict with numbers
    yield loss                      the validation of the next step, up to max_length steps; the
                                    search, or a request to leave, may end the function there
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Mapping
from contextlib import closing, nullcontext
from types import FrameType, FunctionType, GeneratorType
from typing import Any, Literal

from det_jupyter.contract.host.own_threads import frame_of
from det_jupyter.contract.run.journal import Notice
from det_jupyter.contract.trial.rank_arguments import call
from det_jupyter.core import Context, StepCounter, end_reading
from det_jupyter.core.argument_checks import is_number, quoted
from det_jupyter.pytorch.training.batch_events import Reason

FunctionReason = Reason | Literal["invalid_hp"]


class FunctionRun:
    """One call of the user's function, on one rank of its gang."""

    trial = None  # there is no trial class

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
        given = {"core_context": context, "context": context, "info": info, "hparams": hparams}
        returned = call(self._function, hparams | given)
        if isinstance(returned, GeneratorType):
            self._step_through(returned)
        end_reading()
        if returned is not None and not isinstance(returned, GeneratorType):
            self._report_returned(returned)
        self._context.profiler.flush()
        self._context.distributed.barrier()
        early = self._context.train.early_exit  # all ranks have what the chief has reported
        if self._context.train.is_open:  # a `with` block that has ended has warned already
            self._context.warn_of_an_early_end()
        if self._context.preempt.is_acknowledged:
            return early or "preempted"
        searcher = self._context.searcher
        while searcher.was_extended():  # the function itself decides when it ends
            pass
        if early is None:
            searcher.report_reached(self.steps_completed)
        return early or "completed"

    def _report_returned(self, returned: Any) -> None:
        """Report what the function has returned, unless it has reported validations itself."""
        train, searcher = self._context.train, self._context.searcher
        is_over = self._context.preempt.is_acknowledged or train.early_exit is not None
        if is_over or not self._context.distributed.is_chief or train.get_validated()[1]:
            return
        steps = self.steps_completed
        if steps == self._counter.first:
            target = searcher.target
            steps = max(steps, target.amount if target.unit == "batches" else 1)
        if metrics := _metrics_in(returned, searcher.metric):
            # Its own `with core.init()` block may have ended.
            with nullcontext() if train.is_open else self._context:
                train.report_validation_metrics(steps, metrics)
            return
        text = f"{self._function.__name__} has returned {_unfit(returned, searcher.metric)}"
        self._context.sink.write(Notice(at=time.time(), rank=0, text=text))

    def _step_through(self, values: Generator[Any, None, Any]) -> None:
        """Report what the function yields as the validations of its steps.

        It is closed where the trial ends before it. Collective: it has to yield as often on all
        ranks.

        Raises:
            ValueError: It has yielded something that has no searcher metric.
        """
        with closing(values):
            for step, value in enumerate(values, self._counter.first + 1):
                self._report_yielded(step, value)
                if self._context.preempt.should_preempt() or not self._goes_on(step):
                    break

    def _report_yielded(self, step: int, value: Any) -> None:
        train, metric = self._context.train, self._context.searcher.metric
        if value is None or not self._context.distributed.is_chief:
            train.note_steps(step)
            return
        metrics = _metrics_in(value, metric)
        if metrics is None:
            raise ValueError(f"{self._function.__name__} has yielded {_unfit(value, metric)}")
        train.report_validation_metrics(step, metrics)

    def _goes_on(self, step: int) -> bool:
        """Return whether the trial trains beyond a step; wait for the search if it decides that.

        Collective.
        """
        searcher = self._context.searcher
        if step < searcher.target.amount or searcher.was_extended():
            return True
        if searcher.is_last:
            return False
        searcher.report_reached(step)
        goes_on = searcher.await_next()
        if not goes_on:
            self._context.preempt.acknowledge_preemption_signal()
        return goes_on

    def live(self) -> dict[str, Any]:
        found = {"context": self._context, "steps_completed": self.steps_completed}
        return found | _variables_of(self._function, frame_of(threading.main_thread()))


def _metrics_in(value: Any, metric: str) -> dict[str, Any] | None:
    """Return the metrics of a validation; None if the searcher's is not among them.

    A dict may have other values, too, which are left out.

    >>> _metrics_in(0.5, "loss"), _metrics_in({"loss": 0.5, "note": "short"}, "loss")
    ({'loss': 0.5}, {'loss': 0.5})
    """
    given = value if isinstance(value, Mapping) else {metric: value}
    plain = {name: each.item() if _is_scalar(each) else each for name, each in given.items()}
    metrics = {name: each for name, each in plain.items() if is_number(each)}
    return metrics if metric in metrics else None


def _is_scalar(value: Any) -> bool:
    """Return whether a value is a tensor, an array or a scalar of numpy without dimensions."""
    return getattr(value, "ndim", None) == 0 and hasattr(value, "item")


def _unfit(value: Any, metric: str) -> str:
    return f"{quoted(value)}, expected a number ({metric}), or a dict that has {metric}"


def _variables_of(function: FunctionType, frame: FrameType | None) -> dict[str, Any]:
    while frame is not None:
        if frame.f_code is function.__code__:
            return dict(frame.f_locals)
        frame = frame.f_back
    return {}
