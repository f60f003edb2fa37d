"""Times a rank whose training loop is the user's own, or a trainer's, by the calls that it makes.

Torch's own hooks (torch_hooks.py) report the calls. Each becomes a mark, whose code is that of the
call; loop_calls.py converts calls to parts before the marks are read. A hook runs in every step,
when the processor's caches are filled with torch's code, so it does as little as possible. An
error of a hook would be one of the user's step: it ends the timing instead.

Timing begins after the first step; the time before is the start of the script.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import get_ident
from time import perf_counter_ns
from typing import Any, Protocol
from weakref import ref

from det_jupyter.config.sections import Profiling
from det_jupyter.core.timings.arrivals import Arrivals
from det_jupyter.core.timings.clocks import Clock, HostClock
from det_jupyter.core.timings.intervals import END, PERIOD_NS, Taken
from det_jupyter.core.timings.loop_calls import (
    ASKED,
    ASKED_OTHER,
    BEGAN_BACKWARD,
    BEGAN_STEP,
    CALLED,
    CALLED_LATE,
    ENDED_BACKWARD,
    ENDED_BATCH,
    EVALUATED,
    EVALUATED_OWN,
    GOT,
    GOT_END,
    RESUMED_BACKWARD,
    LoopCalls,
)
from det_jupyter.core.timings.rank_timings import Sink, Timings

KEY = -29  # of the module hook; torch's own keys count from 0
# Marks without a step, such as those of a loop that changes the weights itself.
_MOST_MARKS = 100_000

logger = logging.getLogger(__name__)


class OwnProfiler(Protocol):
    """The ProfilerContext of this process, whose sections and counters go with the records."""

    def take(self) -> tuple[list[Taken], dict[str, float]]: ...
    def lead(self, mark: Callable[[], int] | None) -> None: ...


class LoopTimings:
    """Times the loop of this process. Its methods are called by hooks, in the loop's thread.

    Args:
        sink: Stores the records.
        steps: Batches that earlier runs have trained.
        open_clock: Returns the clock for the parameters of an optimizer; None: none was seen.
        open_arrivals: Returns the page on which ranks share when they arrive at exchanges.

    Attributes:
        thread: The thread that is timed; 0 before the first step, -1 if nothing is timed.
        armed: Torch's dict of global module hooks; torch calls `before_module` while it is in it.
        is_over: Whether the run that was timed is over, or belongs to another process.
        is_compiling: Returns whether torch traces this call.
        has_gradients: Returns whether gradients are computed.
        meet: Called with a module that is trained, unless it is the same as the last time.
        replicas: Weak references to the modules that exchange gradients in the backward pass.
    """

    __slots__ = (
        "_at",
        "_calls",
        "_clock",
        "_codes",
        "_first",
        "_flushed_at",
        "_has_data",
        "_has_own_steps",
        "_hook",
        "_is_stepping",
        "_is_within_backward",
        "_iterator",
        "_now",
        "_open_arrivals",
        "_open_clock",
        "_process",
        "_profiler",
        "_sink",
        "_steps",
        "_timings",
        "_trained",
        "armed",
        "has_gradients",
        "is_compiling",
        "is_over",
        "meet",
        "replicas",
        "thread",
    )

    def __init__(
        self,
        sink: Sink,
        steps: int = 0,
        *,
        open_clock: Callable[[Any], Clock] = lambda optimizer: HostClock(),
        open_arrivals: Callable[[], Arrivals | None] = lambda: None,
    ) -> None:
        self._sink = sink
        self._first = steps
        self._open_clock, self._open_arrivals = open_clock, open_arrivals
        self._process = os.getpid()
        self._profiler: OwnProfiler | None = None
        self._clock: Clock | None = None
        self._timings: Timings | None = None
        self._steps = 0  # batches of this run before the timings began
        self._has_own_steps = False  # the loop calls `profiler.step()`
        self._hook = self.before_module
        self.thread = 0
        self.is_over = False
        self.armed: dict[int, Any] = {}
        self.is_compiling: Callable[[], bool] = bool
        self.has_gradients: Callable[[], bool] = bool
        self.meet: Callable[[Any], object] = bool
        self.replicas: list[Callable[[], Any]] = []

    # The beginning and the end.

    def connect(self, profiler: OwnProfiler) -> None:
        """Take sections and counters from this profiler from now on."""
        self._profiler = profiler
        if self._timings is not None:
            profiler.lead(self._section_mark)

    def take(self) -> tuple[list[Taken], dict[str, float]]:
        """Return and clear the sections and counters."""
        return ([], {}) if self._profiler is None else self._profiler.take()

    def _begin(self, optimizer: Any) -> None:
        """Begin to time; the first step is over."""
        if os.getpid() != self._process:
            self.thread = -1
            return
        try:
            if self._clock is None:
                self._clock = self._open_clock(optimizer)
            arrivals = self._open_arrivals()
        except Exception as error:  # a GPU that has failed, a folder that is gone
            self._give_up(error)
            return
        self._timings = timings = Timings(
            Profiling(),
            self._first + self._steps,
            profiler=self,
            clock=self._clock,
            arrivals=arrivals,
            begins=END,
        )
        self._at, self._codes, self._now = timings.marks.at, timings.marks.codes, self._clock.mark
        self._calls = LoopCalls(has_own_batches=self._has_own_steps)
        self._flushed_at = perf_counter_ns()
        self._is_stepping = self._is_within_backward = False
        self._has_data = False  # since the last step
        # Weak reference to the iterator of the last next().
        self._iterator: Callable[[], Any] = lambda: None
        # Weak reference to the last module with gradients.
        self._trained: Callable[[], Any] = lambda: None
        self.thread = get_ident()
        if self._profiler is not None:
            self._profiler.lead(self._section_mark)
        self.armed[KEY] = self._hook

    @property
    def _section_mark(self) -> Callable[[], int] | None:
        return None if self._clock is None or self._clock.is_host else self._clock.mark

    def leave(self) -> None:
        """Stop timing until `begin_run`: this process is a fork of the one that is timed."""
        self.thread, self._timings, self.is_over = -1, None, True

    def _give_up(self, error: Exception) -> None:
        """Stop timing until `begin_run`, after an error of a hook."""
        logger.warning("timings: this run is not timed any more, because of %r", error)
        self.leave()

    def close(self) -> None:
        """Write the remaining records, and stop timing until `resume`."""
        if self.thread > 0 and os.getpid() == self._process:
            self.flush()
            if (timings := self._timings) is not None:
                with suppress(Exception):  # raised for a GPU that has failed
                    timings.write_pending(self._sink)
                self._steps = timings.steps - self._first
                self._timings = None
        self.armed.pop(KEY, None)
        self.thread = -1

    def resume(self) -> None:
        """Time again, after the next step, unless the run is over."""
        if not self.is_over and os.getpid() == self._process:
            self.thread = 0

    def end_run(self) -> None:
        """Write the remaining records, and stop timing until `begin_run`."""
        self.close()
        self.is_over = True

    def begin_run(
        self, sink: Sink, steps: int, open_arrivals: Callable[[], Arrivals | None]
    ) -> None:
        """Time another run, in this process, from its first step on, after `end_run`."""
        self._sink, self._first, self._steps = sink, steps, 0
        self._open_arrivals = open_arrivals
        self._has_own_steps, self._profiler = False, None
        self._process, self.is_over = os.getpid(), False
        self.resume()

    def flush(self) -> None:
        """Write the record of the batches since the last one."""
        timings = self._timings
        if timings is None or self.thread != get_ident():
            return
        try:
            self._calls.read(self._codes)
            timings.count_batches()
            timings.part = self._calls.part
            timings.journal(self._sink)
            self._flushed_at = perf_counter_ns()
            self._calls.forget(len(self._codes))
        except Exception as error:  # a full disk, a GPU that has failed
            self._give_up(error)

    def _flush_after(self, closer: int) -> None:
        """Write a record after the step of this optimizer, if it is the last one of the batch."""
        self._calls.read(self._codes)
        if self._calls.closer == closer:
            self.flush()

    def _flush_between_steps(self) -> None:
        """Write a record of a validation that lasts, or of a loop that takes no steps."""
        if perf_counter_ns() - self._flushed_at >= PERIOD_NS:
            self._calls.read(self._codes)
            if self._calls.is_validating or len(self._at) > _MOST_MARKS:
                self.flush()

    # The methods that torch calls.

    def timed_next(self, following: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return the `__next__` of a DataLoader's iterators with marks around it."""
        loop = self

        def __next__(iterator: Any) -> Any:
            if loop.thread != get_ident():
                return following(iterator)
            loop.armed.pop(KEY, None)
            if loop._has_data:
                loop._flush_between_steps()
            code = ASKED
            if iterator is not loop._iterator():
                code, loop._iterator = ASKED_OTHER, ref(iterator)
            loop._at.append(loop._now())
            loop._codes.append(code)
            code = GOT_END
            try:
                batch = following(iterator)
                code = GOT
                return batch
            finally:
                loop._at.append(loop._now())
                loop._codes.append(code)
                loop._has_data = code == GOT
                loop.armed[KEY] = loop._hook

        return __next__

    def before_module(self, module: Any, args: tuple[Any, ...]) -> None:
        """Hook: a module is called that no other one calls."""
        if self.is_compiling():
            return
        if self.thread != get_ident():
            if self.thread <= 0:
                self.armed.pop(KEY, None)
            return
        self.armed.pop(KEY, None)
        if self._is_within_backward:
            return
        code = CALLED
        if self.has_gradients():
            if module is not self._trained():
                self.meet(module)
                self._trained = ref(module)
            for each in args:
                if getattr(each, "requires_grad", False) and each.grad_fn is not None:
                    code = CALLED_LATE
        elif not module.training:
            trained = self._trained()
            is_own = module is trained or module is getattr(trained, "module", None)
            code = EVALUATED_OWN if is_own else EVALUATED
        self._at.append(self._now())
        self._codes.append(code)

    def timed_backward(self, backward: Callable[..., Any]) -> Callable[..., Any]:
        """Return torch.autograd.backward with marks around it."""
        loop = self

        def timed(*args: Any, **kwargs: Any) -> Any:
            if loop.thread != get_ident() or loop._is_within_backward:
                return backward(*args, **kwargs)
            loop._is_within_backward = True
            if loop.replicas:
                loop._expect_exchange()
            loop._at.append(loop._now())
            loop._codes.append(BEGAN_BACKWARD)
            try:
                return backward(*args, **kwargs)
            finally:
                loop._is_within_backward = False
                if loop.replicas:
                    loop._end_exchange()
                loop._at.append(loop._now())
                loop._codes.append(ENDED_BACKWARD)
                if not loop._has_data:
                    loop.armed[KEY] = loop._hook
                    if len(loop._at) > _MOST_MARKS:
                        loop.flush()

        return timed

    def _expect_exchange(self) -> None:
        """Mark when the exchange of gradients begins, if there is one in this backward pass."""
        replicas = (has() for has in self.replicas)
        if (timings := self._timings) is not None:
            timings.begin_backward(
                any(each is not None and each.require_backward_grad_sync for each in replicas)
            )

    def _end_exchange(self) -> None:
        if (timings := self._timings) is not None:
            timings.end_exchange()

    def within_backward(self, _: Any) -> None:
        """Hook: the backward pass has computed a gradient. Called only on several ranks."""
        if (timings := self._timings) is not None and not self.is_compiling():
            timings.within_backward()

    def before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Hook: an optimizer steps. A step that another class extends calls this twice."""
        if self.is_compiling() or self.thread != get_ident():
            return
        self._is_stepping = True
        self._at.append(self._now())
        self._codes.append(BEGAN_STEP)

    def after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Hook: an optimizer has stepped. The batch ends, unless another one steps for it too."""
        if self.is_compiling():
            return
        if self.thread != get_ident():
            if self.thread == 0 and not self._has_own_steps:
                self._steps += 1
                self._begin(optimizer)
            return
        if not self._is_stepping:
            return
        self._is_stepping = False
        self._at.append(self._now())
        self._codes.append(-id(optimizer))
        if not self._has_own_steps:
            if self._has_data:
                self._has_data = False
            else:
                self.armed[KEY] = self._hook
            if perf_counter_ns() - self._flushed_at >= PERIOD_NS:
                self._flush_after(-id(optimizer))
        if self._is_within_backward:
            self._at.append(self._now())
            self._codes.append(RESUMED_BACKWARD)

    def end_own_batch(self) -> None:
        """End a batch, because the loop has called `profiler.step()`."""
        is_timed = self.thread == get_ident()
        if self.thread == 0 or (is_timed and not self._has_own_steps):
            self._has_own_steps = True  # steps of optimizers that were counted are no batches
            self._steps = 1
            self._begin(None)
        elif is_timed:
            self._at.append(self._now())
            self._codes.append(ENDED_BATCH)
            self._has_data = False
            self.armed[KEY] = self._hook
            if perf_counter_ns() - self._flushed_at >= PERIOD_NS:
                self._flush_after(0)

    @contextmanager
    def timed_block(self, part: str) -> Iterator[None]:
        """Time the block as one part that includes all parts within it."""
        timings = self._timings
        if timings is None or self.thread != get_ident():
            yield
            return
        self._calls.read(self._codes)
        timings.part = self._calls.part
        self.thread = -1
        try:
            with timings.timed_block(part):
                yield
        finally:
            if self._timings is timings and not self.is_over:
                self.thread = get_ident()
                self._calls.forget(len(self._codes))
                self.armed[KEY] = self._hook
