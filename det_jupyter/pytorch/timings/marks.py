"""Times the parts of a rank's work: marks as it goes from one to the next, records later.

At each moment one part is under way: what has no part of its own is the rest. A mark is a time and
what begins there, in two lists, since to put both in one number takes as long as all else in it. A
part costs two marks, and all reckoning waits for a flush:

    part       a timer around the function that does it; nested ones take their time from the outer
    whole      a part whose inner ones belong to it: validation, checkpoint
    exchange   ranks wait for each other in it: it is noted when this one arrived (arrivals.py)

The exchange of gradients overlaps with the backward pass. What counts is its end, which does not:
from when this rank's own backward pass is done until `backward` returns. Autograd calls back at
that moment, before DDP's callback waits for the exchange, if it is asked within the pass; a
parameter's hook asks. Code in other threads than the loop's has no parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import get_ident
from time import perf_counter_ns
from typing import Any, ParamSpec, TypeVar

import torch

from det_jupyter.config.sections import Profiling
from det_jupyter.contract.run.journal import BatchTimings, StepTimes
from det_jupyter.core import ProfilerContext, RecordSink
from det_jupyter.core.profiler import PERIOD_NS
from det_jupyter.pytorch.timings.arrivals import NO_NUMBER, Arrivals
from det_jupyter.pytorch.timings.clocks import Clock, HostClock
from det_jupyter.pytorch.timings.intervals import CODES, END
from det_jupyter.pytorch.timings.reading import Marks, Reading

P = ParamSpec("P")
T = TypeVar("T")

_REST, _NEXT, _EXCHANGE = CODES["rest"], CODES["dataloader_next"], CODES["exchange"]
_PER_BATCH = 16  # exchanges of a batch that have numbers; of others waiting is not told apart
_METHODS = {"to_device": "to_device", "backward": "backward", "optimizer": "step_optimizer"}
_queue_callback = torch.autograd.Variable._execution_engine.queue_callback


class Timings:
    """Times the work of one rank in one run.

    Args:
        profiling: Which batches have raw rows, if any.
        steps: Batches that were trained before.
        profiler: The trial's own sections and counters.
        clock: Makes the marks.
        arrivals: Those of all ranks; None if ranks do not wait for each other, or are apart.
        has_rows: This rank records raw rows.
    """

    def __init__(
        self,
        profiling: Profiling,
        steps: int,
        *,
        profiler: ProfilerContext | None = None,
        clock: Clock | None = None,
        arrivals: Arrivals | None = None,
        has_rows: bool = False,
    ) -> None:
        self._profiler = profiler or ProfilerContext()
        self._clock = clock or HostClock()
        self._arrivals = arrivals
        end = profiling.end_after_batch
        self._window = (profiling.begin_on_batch, (1 << 62) if end is None else end)
        self._has_to_wait = has_rows and profiling.sync_timings
        window = self._window if has_rows else None
        self._reading = Reading(self._clock, arrivals, self._profiler, steps, window)
        self._thread = get_ident()
        self._marks = Marks()
        self._now = self._clock.mark
        self._part = _REST  # under way
        self._records: list[int] = []  # of each batch, on all ranks
        self._batch = steps  # in which the last exchange was
        self._exchange = 0  # the next one's index in the batch
        self._expects = False  # that a backward pass ends with an exchange
        self._is_exchanging = False  # at the end of a backward pass
        self._outer = (0, 0)  # marks and exchanges before those within a whole part
        self._flushed_at = perf_counter_ns()
        self._mark(_REST)

    def timed(self, part: str, function: Callable[P, T]) -> Callable[P, T]:
        """Return the function with a timer around it, which other threads pass by."""
        code, thread = CODES[part], self._thread
        at, codes, now = self._marks.at, self._marks.codes, self._now

        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            if get_ident() != thread:
                return function(*args, **kwargs)
            outer, self._part = self._part, code
            at.append(now())
            codes.append(code)
            try:
                return function(*args, **kwargs)
            finally:
                self._part = outer
                at.append(now())
                codes.append(outer)

        return run

    def exchanged(self, function: Callable[P, T]) -> Callable[P, T]:
        """Return the function with a timer; ranks wait for each other in it."""

        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            outer = self._part
            self._arrive()
            try:
                return function(*args, **kwargs)
            finally:
                self._mark(outer)

        return run

    @contextmanager
    def whole(self, part: str) -> Iterator[None]:
        """Time the block as one part, whatever is done in it."""
        outer, self._part = self._part, CODES[part]
        self._mark(self._part)
        self._outer = self._marks.lengths()
        try:
            yield
        finally:
            self._marks.cut(*self._outer)
            self._part = outer
            self._mark(outer)

    @contextmanager
    def watching(self, context: Any) -> Iterator[None]:
        """Time what a trial calls of its context within the block."""
        for part, method in _METHODS.items():
            vars(context)[method] = self.timed(part, getattr(context, method))
        if context.distributed.size > 1:
            context.stepping.watch(self)
        try:
            yield
        finally:
            for method in _METHODS.values():
                del vars(context)[method]
            context.stepping.watch(None)

    def start(self) -> None:
        """Begin now: what was done before is not of interest."""
        self._marks.cut(0, 0)
        self._profiler.take()
        self._mark(self._part)

    @contextmanager
    def journaling(
        self, context: Any, sink: RecordSink, barrier: Callable[[], None]
    ) -> Iterator[None]:
        """Time what a trial calls of its context, and write what is left when the block ends.

        Marks of a device are written after the barrier, which is not called if the block raises.
        """
        mark = None if self._clock.is_host else self._now
        try:
            with self._profiler.driven(mark=mark), self.watching(context):
                yield
        except BaseException:
            with suppress(Exception):  # the block's own counts
                self.journal(sink)
                self._write(sink, self._reading.take_held())
            raise
        self.journal(sink)
        if not self._clock.is_host:
            barrier()
        self._write(sink, self._reading.take_held())

    def over(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield the batches; `end_batch` ends each."""
        at, codes, now = self._marks.at, self._marks.codes, self._now
        iterator = iter(batches)
        while True:
            if self._has_to_wait:
                self._clock.waits = self._window[0] <= self._steps() <= self._window[1]
            at.append(now())
            codes.append(_NEXT)
            try:
                batch = next(iterator)
            except StopIteration:
                return
            finally:
                at.append(now())
                codes.append(_REST)
            yield batch

    def end_batch(self, records: int) -> None:
        """Note that the batch is done, of which all ranks together trained so many records."""
        self._mark(END)
        self._records.append(records)

    def _steps(self) -> int:
        """Return how many batches are done."""
        return self._reading.steps + len(self._records)

    def flush(self) -> list[StepTimes | BatchTimings]:
        """Return the records of what was done since the last flush. Between batches."""
        self._flushed_at = perf_counter_ns()
        self._mark(self._part)
        found = self._reading.take(self._marks, self._records)
        self._outer = self._marks.lengths()
        return found

    def journal(self, sink: RecordSink) -> None:
        """Write the records of what was done since the last time. Between batches."""
        self._write(sink, self.flush())

    def journal_batches(self, sink: RecordSink) -> None:
        """Write them if batches were trained since then.

        The rest of a validation that was written in its midst would be an interval of a few
        milliseconds without a batch, in which nothing per batch can be shown.
        """
        if self._records:
            self.journal(sink)

    def journal_if_due(self, sink: RecordSink) -> None:
        """Write them if it is about time, within a whole part that takes long."""
        if perf_counter_ns() - self._flushed_at >= PERIOD_NS:
            self._marks.cut(*self._outer)
            self.journal(sink)

    def _write(self, sink: RecordSink, records: list[StepTimes | BatchTimings]) -> None:
        for record in records:
            sink.write(record)

    def _mark(self, code: int) -> None:
        self._marks.at.append(self._now())
        self._marks.codes.append(code)

    def _arrive(self) -> None:
        """Mark that this rank has come to an exchange."""
        at = self._now()
        self._marks.at.append(at)
        self._marks.codes.append(_EXCHANGE)
        if self._batch != (batch := self._steps()):
            self._batch, self._exchange = batch, 0
        number = batch * _PER_BATCH + self._exchange if self._exchange < _PER_BATCH else NO_NUMBER
        self._exchange += 1
        self._marks.exchanges.append(number)
        if number != NO_NUMBER and self._arrivals is not None and self._clock.is_host:
            self._arrivals.write(number, at)

    def expect(self, is_exchanged: bool) -> None:
        """Note whether gradients are exchanged at the end of the next backward pass."""
        self._expects = is_exchanged

    def reached(self) -> None:
        """Ask autograd, within a backward pass, to call back when this rank's own part is done."""
        if self._expects:
            self._expects = False
            _queue_callback(self.ended)

    def ended(self) -> None:
        """Note that this rank's own part of a backward pass is done."""
        self._is_exchanging = True
        self._arrive()

    def passed(self) -> None:
        """Note that a backward pass is over: also one that has no timer, kept from before."""
        if self._is_exchanging:
            self._is_exchanging = False
            self._mark(self._part)
