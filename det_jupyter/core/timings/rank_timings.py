"""Times the parts of a rank's work: marks while it trains, records at a flush.

At each moment one part is running; work that has no part of its own is "rest". A mark is a time
and the part that begins there, in two lists: to combine both in one number would double the cost.
A part costs two marks; everything is computed at a flush:

    part       a timer around a function; the time of nested parts is not the outer one's
    block      a part that includes the parts nested in it: validation, checkpoint
    exchange   a part in which ranks wait for each other: this rank's arrival is shared with them
               (arrivals.py)

The exchange of gradients overlaps with the backward pass. Only its end, which does not overlap, is
measured: from the moment at which this rank's own gradients are computed until `backward` returns.
Autograd calls a callback of ours at that moment, before DDP's callback waits for the exchange. A
parameter's hook queues the callback, since that is possible only within the backward pass. Only
the loop's thread is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from threading import get_ident
from time import perf_counter_ns
from typing import Any, ParamSpec, Protocol, TypeVar

from det_jupyter.config.sections import Profiling
from det_jupyter.contract.run.journal import BatchTimings, Record, StepTimes
from det_jupyter.core.timings.arrivals import NO_NUMBER, Arrivals
from det_jupyter.core.timings.clocks import Clock, DeviceClock, HostClock
from det_jupyter.core.timings.intervals import CODES, END, PERIOD_NS, Taken
from det_jupyter.core.timings.mark_reader import MarkReader, Marks, OwnTimes

P = ParamSpec("P")
T = TypeVar("T")

_REST, _NEXT, _EXCHANGE = CODES["rest"], CODES["dataloader_next"], CODES["exchange"]
_PER_BATCH = 16  # exchanges of a batch that have numbers; waiting in further ones is not split off
_METHODS = {"to_device": "to_device", "backward": "backward", "optimizer": "step_optimizer"}


class Sink(Protocol):
    """Stores records: a RecordSink."""

    def write(self, record: Record) -> None: ...


class _NoOwnTimes:
    """No sections and counters."""

    def take(self) -> tuple[list[Taken], dict[str, float]]:
        return [], {}


class Timings:
    """Times the work of one rank in one run.

    Args:
        profiling: Which batches get raw rows, if any.
        steps: Batches that earlier runs have trained.
        profiler: The trial's own sections and counters.
        clock: Makes the marks.
        arrivals: When ranks arrive at exchanges; None with one rank, or on several machines.
        has_rows: Whether this rank records raw rows.
        begins: The code that begins a batch: `dataloader_next`, or END in a loop that is not ours.
    """

    def __init__(
        self,
        profiling: Profiling,
        steps: int,
        *,
        profiler: OwnTimes | None = None,
        clock: Clock | None = None,
        arrivals: Arrivals | None = None,
        has_rows: bool = False,
        begins: int = _NEXT,
    ) -> None:
        self._profiler = profiler or _NoOwnTimes()
        self._clock = clock or HostClock()
        self._arrivals = arrivals
        end = profiling.end_after_batch
        self._window = (profiling.begin_on_batch, (1 << 62) if end is None else end)
        self._has_to_wait = has_rows and profiling.sync_timings
        window = self._window if has_rows else None
        self._reader = MarkReader(self._clock, arrivals, self._profiler, steps, window, begins)
        self._thread = get_ident()
        self.marks = Marks()
        self._now = self._clock.mark
        self.part = _REST  # the part that is running
        self._records: list[int] = []  # records of each batch on all ranks together
        self._batch = steps  # number of the batch of the last exchange
        self._exchange = 0  # index of the next exchange in its batch
        # A loop of the user, in which exchanges are not numbered by batch.
        self._is_own_loop = begins == END
        self._ends_with_exchange = False  # the backward pass that is running
        self._is_exchanging = False  # a backward pass is at its end
        self._outer = (0, 0)  # numbers of marks and exchanges at the beginning of a timed block
        self._flushed_at = perf_counter_ns()
        self._mark(_REST)

    def timed(self, part: str, function: Callable[P, T]) -> Callable[P, T]:
        """Return the function with a timer around it; calls from other threads are not timed."""
        code, thread = CODES[part], self._thread
        at, codes, now = self.marks.at, self.marks.codes, self._now

        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            if get_ident() != thread:
                return function(*args, **kwargs)
            outer, self.part = self.part, code
            at.append(now())
            codes.append(code)
            try:
                return function(*args, **kwargs)
            finally:
                self.part = outer
                at.append(now())
                codes.append(outer)

        return run

    def timed_exchange(self, function: Callable[P, T]) -> Callable[P, T]:
        """Return the function, in which ranks wait for each other, with a timer around it."""

        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            outer = self.part
            self._mark_exchange()
            try:
                return function(*args, **kwargs)
            finally:
                self._mark(outer)

        return run

    @contextmanager
    def timed_block(self, part: str) -> Iterator[None]:
        """Time the block as one part that includes all parts within it."""
        outer, self.part = self.part, CODES[part]
        self._mark(self.part)
        self._outer = self.marks.lengths()
        try:
            yield
        finally:
            self.marks.cut(*self._outer)
            self.part = outer
            self._mark(outer)

    @contextmanager
    def timing_context(self, context: Any) -> Iterator[None]:
        """Within the block, time the methods of the context that the trial calls."""
        for part, method in _METHODS.items():
            vars(context)[method] = self.timed(part, getattr(context, method))
        if context.distributed.size > 1:
            context.stepping.set_timer(self)
        try:
            yield
        finally:
            for method in _METHODS.values():
                del vars(context)[method]
            context.stepping.set_timer(None)

    def start(self) -> None:
        """Begin to time now: discard the marks, sections and counters so far."""
        self.marks.cut(0, 0)
        self._profiler.take()
        self._mark(self.part)

    @contextmanager
    def journaling(self, context: Any, sink: Sink, barrier: Callable[[], None]) -> Iterator[None]:
        """Time the block, and write the remaining records to the journal when it ends.

        The pending record of a GPU is written after `barrier`, or without it if the block raises.
        """
        mark = None if self._clock.is_host else self._now
        try:
            with context.profiler.driven(mark=mark), self.timing_context(context):
                yield
        except BaseException:  # an interrupt too: records are written first
            with suppress(Exception):  # the block's exception is the one to raise
                self.journal(sink)
                self.write_pending(sink)
            raise
        self.journal(sink)
        if not self._clock.is_host:
            barrier()
        self.write_pending(sink)

    def timed_batches(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield the batches, timing how long each takes to come; call `end_batch` after each."""
        at, codes, now = self.marks.at, self.marks.codes, self._now
        iterator = iter(batches)
        while True:
            if self._has_to_wait:
                self._clock.waits = self._window[0] <= self.steps <= self._window[1]
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
        """Mark the end of a batch; `records` is the number that all ranks together trained."""
        self._mark(END)
        self._records.append(records)

    def count_batches(self) -> None:
        """Count the batches that end in the marks, in a loop that is not ours."""
        self._records = [0] * self.marks.codes.count(END)

    @property
    def steps(self) -> int:
        """The number of batches trained, from the trial's beginning."""
        return self._reader.steps + len(self._records)

    def flush(self) -> list[StepTimes | BatchTimings]:
        """Return the records since the last flush. Call it between batches."""
        self._flushed_at = perf_counter_ns()
        self._mark(self.part)
        found = self._reader.read(self.marks, self._records)
        self._outer = self.marks.lengths()
        return found

    def journal(self, sink: Sink) -> None:
        """Write the records since the last flush. Call it between batches."""
        self._write(sink, self.flush())

    def journal_batches(self, sink: Sink) -> None:
        """Write the records since the last flush, if a batch was trained since then.

        After a validation that wrote records within it (`journal_if_due`), there would else be an
        interval of a few milliseconds without a batch, in which nothing per batch can be shown.
        """
        if self._records:
            self.journal(sink)

    def journal_if_due(self, sink: Sink) -> None:
        """Write the records so far within a long timed block, once every PERIOD_NS."""
        if perf_counter_ns() - self._flushed_at >= PERIOD_NS:
            self.marks.cut(*self._outer)
            self.journal(sink)

    def write_pending(self, sink: Sink) -> None:
        """Write the record of a GPU that is pending."""
        self._write(sink, self._reader.take_pending())

    def _write(self, sink: Sink, records: list[StepTimes | BatchTimings]) -> None:
        for record in records:
            sink.write(record)

    def _mark(self, code: int) -> None:
        self.marks.at.append(self._now())
        self.marks.codes.append(code)

    def _mark_exchange(self) -> None:
        """Mark the arrival of this rank at an exchange.

        A mark of the host's clock is a time, and is written to the page that the ranks share.
        """
        at = self._now()
        self.marks.at.append(at)
        self.marks.codes.append(_EXCHANGE)
        number = self._next_number()
        self.marks.exchanges.append(number)
        if number != NO_NUMBER and self._arrivals is not None and self._clock.is_host:
            self._arrivals.write(number, at)

    def _next_number(self) -> int:
        """Return the number of the exchange that begins, which is the same on all ranks."""
        if self._is_own_loop:  # batches may be counted later on another rank
            self._exchange += 1
            return self._exchange
        if self._batch != (batch := self.steps):
            self._batch, self._exchange = batch, 0
        number = batch * _PER_BATCH + self._exchange if self._exchange < _PER_BATCH else NO_NUMBER
        self._exchange += 1
        return number

    def begin_backward(self, is_exchanged: bool) -> None:
        """Begin a backward pass; `is_exchanged`: gradients are exchanged at its end."""
        self._ends_with_exchange = is_exchanged

    def within_backward(self) -> None:
        """Queue `end_own_backward` for the end of the backward pass. Called by a hook in it."""
        if self._ends_with_exchange:
            self._ends_with_exchange = False
            queue_of_engine()(self.end_own_backward)

    def end_own_backward(self) -> None:
        """Mark that this rank has computed its gradients and now waits for their exchange."""
        self._is_exchanging = True
        self._mark_exchange()

    def end_exchange(self) -> None:
        """End the exchange; the caller marks what follows."""
        self._is_exchanging = self._ends_with_exchange = False

    def end_backward(self) -> None:
        """Mark the end of the exchange, if one was waited for."""
        if self._is_exchanging:
            self._is_exchanging = False
            self._mark(self.part)


@cache
def queue_of_engine() -> Callable[[Callable[[], None]], None]:
    """Return the function that queues a call for the end of the backward pass that is running."""
    import torch

    return torch.autograd.Variable._execution_engine.queue_callback


class NoTimings:
    """The methods of Timings without effect: nothing is timed, and functions are unchanged."""

    end_batch = None

    def timed(self, part: str, function: Callable[P, T]) -> Callable[P, T]:
        return function

    def timed_exchange(self, function: Callable[P, T]) -> Callable[P, T]:
        return function

    def timed_block(self, part: str) -> AbstractContextManager[None]:
        return nullcontext()

    def timed_batches(self, batches: Iterable[T]) -> Iterable[T]:
        return batches

    def start(self) -> None:
        pass

    def journaling(
        self, context: Any, sink: Sink, barrier: Callable[[], None]
    ) -> AbstractContextManager[None]:
        return context.profiler.driven(is_on=False)  # type: ignore[no-any-return]

    def journal_batches(self, sink: Sink) -> None:
        pass

    def journal_if_due(self, sink: Sink) -> None:
        pass


AnyTimings = Timings | NoTimings
NO_TIMINGS = NoTimings()


def open_timings(profiling: Profiling, context: Any, steps: int) -> AnyTimings:
    """Return the timings of this rank; earlier runs have trained `steps` batches. Collective."""
    if profiling.enabled is False:
        return NO_TIMINGS
    distributed = context.distributed
    return Timings(
        profiling,
        steps,
        profiler=context.profiler,
        clock=DeviceClock.of(context.device) if context.device.type == "cuda" else HostClock(),
        arrivals=Arrivals.open(distributed),
        has_rows=bool(profiling.enabled) and distributed.is_chief,
    )
