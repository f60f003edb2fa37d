"""Times a rank whose training loop is the user's own, or a trainer's, by the calls that it makes.

Torch's own hooks (torch_hooks.py) say what the loop does; from these calls follow the same marks
as those of our loop:

    call                                          the part that begins
    next() of a DataLoader                        dataloader_next, until it returns: rest
    the first module called after that            forward, with all until `backward`
    backward                                      backward; at the end of DDP's: exchange; rest
    step() of an optimizer                        optimizer; then the batch ends: rest

A batch is a step of the optimizer, with all data whose gradients it uses. If several optimizers
step one after the other, the last one ends the batch: it ends when one of them steps again.

    no backward pass since the first next() of a DataLoader's iterator, but calls of modules (or
      the training shows none: compiled functions make them),
      and three batches of it, or its end, or one that a module in eval mode has got without
      gradients before another iterator is used                                       validation
    a module that is trained, in eval mode and without gradients,
      and no DataLoader                                       validation, until the next `backward`
    no module seen before `backward` (a compiled function has called it),
      or first a loss, computed of what has gradients                       forward, from next() on

Marks that turn out to be of a validation are renamed, so nothing has to be predicted. Timing
begins after the first step: what comes before is the start of a script.
"""

from __future__ import annotations

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
from det_jupyter.core.timings.intervals import CODES, END, PERIOD_NS, Taken
from det_jupyter.core.timings.rank_timings import Sink, Timings

_REST, _NEXT, _FORWARD = CODES["rest"], CODES["dataloader_next"], CODES["forward"]
_BACKWARD, _OPTIMIZER = CODES["backward"], CODES["optimizer"]
_VALIDATION = CODES["validation"]
_SURE = 3  # batches of an iterator without a backward pass; trainers fetch one or two ahead
_MOST_MARKS = 100_000  # without a step, such as of a loop that changes the weights itself
_NOWHERE = -1


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
        arm: Makes the next call of a module call `before_module`.
        disarm: Undoes it.
    """

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
        self._steps = 0  # of this run, before the timings began
        self._has_own_steps = False  # the loop calls `profiler.step()`
        self._closers: set[int] = set()  # optimizers that stepped in the batch that ends
        self._closer = 0  # the last one of them
        self.thread = 0
        self.arm: Callable[[], object] = bool
        self.disarm: Callable[[], object] = bool
        self._reset()

    def _reset(self) -> None:
        """Forget what is known of the batch that is under way."""
        self._part = _REST
        self._stepping = 0  # id of the optimizer that steps
        self._before_step = _REST  # the part in which it does
        self._end_at = _NOWHERE  # index of the mark that ends the last batch
        self._has_data = False  # the batch has data of a DataLoader
        self._data_at = _NOWHERE  # index of the mark after the last next()
        self._iterator: Callable[[], Any] = lambda: None  # weak: of the last next()
        self._num_next = 0  # of that iterator, since the last backward pass
        self._begun_at = _NOWHERE  # index of the mark of the first of these
        self._renamed: list[int] = []  # the codes since then, before they became a validation's
        self._is_called = False  # a module was called meanwhile
        self._is_late = False  # the first module seen got what an unseen one had computed
        self._is_seen = False  # calls of modules are seen in the training
        self._is_evaluated = False  # a module in eval mode was called without gradients meanwhile
        self._is_validating = False
        self._trained = (0, 0)  # ids of the last trained module, and of what it wraps

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
        if self._clock is None:
            self._clock = self._open_clock(optimizer)
        self._timings = timings = Timings(
            Profiling(),
            self._first + self._steps,
            profiler=self,
            clock=self._clock,
            arrivals=self._open_arrivals(),
            begins=END,
        )
        self._marks, self._now = timings.marks, self._clock.mark
        self._at, self._codes = self._marks.at, self._marks.codes
        self._flushed_at = perf_counter_ns()
        self._reset()
        self.thread = get_ident()
        if self._profiler is not None:
            self._profiler.lead(self._section_mark)
        self.arm()

    @property
    def _section_mark(self) -> Callable[[], int] | None:
        return None if self._clock is None or self._clock.is_host else self._clock.mark

    def leave(self) -> None:
        """Time nothing any more: this is a copy of the process."""
        self.thread = -1

    def close(self) -> None:
        """Write what there is and time nothing any more, until the next `resume`."""
        if self.thread > 0 and os.getpid() == self._process:
            self.flush()
            assert self._timings is not None
            with suppress(Exception):  # of a GPU, if the device has failed
                self._timings.write_pending(self._sink)
            self._steps = self._timings.steps - self._first
            self._timings = None
        self.disarm()
        self.thread = -1

    def resume(self) -> None:
        """Time again, after the next step."""
        if os.getpid() == self._process:
            self.thread = 0

    def flush(self) -> None:
        """Write the record of the batches since the last one."""
        if self._timings is not None and self.thread == get_ident():
            self._timings.part = self._part
            self._timings.journal(self._sink)
            self._flushed_at = perf_counter_ns()
            self._forget_marks()

    def _forget_marks(self) -> None:
        """The marks so far cannot be renamed any more."""
        self._begun_at = self._data_at = self._end_at = _NOWHERE
        self._num_next, self._renamed = 0, []

    # What the loop calls, as hooks report it.

    def begin_data(self, iterator: Any) -> None:
        """A DataLoader's iterator is asked for a batch."""
        self.disarm()
        if iterator is not self._iterator():
            if self._is_evaluated and self._num_next and not self._is_validating:
                self._rename()
            self._is_validating = self._is_evaluated = self._is_called = False
            self._iterator, self._num_next, self._renamed = ref(iterator), 0, []
        elif self._num_next >= _SURE and self._is_read_only():
            self._rename()
        if self._is_validating:
            if perf_counter_ns() - self._flushed_at >= PERIOD_NS:
                self.flush()
            return
        if not self._num_next:
            self._begun_at = len(self._at)
        self._num_next += 1
        self._mark(_NEXT)

    def end_data(self, is_over: bool) -> None:
        """It has returned a batch, or there are no more."""
        if is_over and self._num_next > 1 and self._is_read_only():
            self._rename()
        if not self._is_validating or is_over:
            self._has_data = self._has_data or not self._is_validating
            self._data_at = len(self._at)
            self._mark(_REST)
        self.arm()

    def _is_read_only(self) -> bool:
        """Return whether the data since the last backward pass are of a validation.

        Trainers that accumulate gradients may fetch all batches of a step before the first call.
        """
        return not self._is_validating and (self._is_called or not self._is_seen)

    def before_module(self, module: Any, has_gradients: bool, follows: bool = False) -> None:
        """A module is called that no other one calls; `follows`: on what has gradients."""
        self._is_called = True
        if self._part not in (_REST, _VALIDATION, _OPTIMIZER):
            return
        self._is_late = follows
        if follows:
            self._begin_forward()
        if has_gradients or module.training:
            if has_gradients and id(module) != self._trained[0]:
                self._trained = id(module), id(getattr(module, "module", None))
            self._mark(_FORWARD)
            return
        self._is_evaluated = True
        is_own = not self._has_data and id(module) in self._trained
        self._mark(_VALIDATION if self._is_validating or is_own else _FORWARD)

    def begin_backward(self, is_exchanged: bool) -> bool:
        """A backward pass begins; return False if it is within another one."""
        if self._part == _BACKWARD:
            return False
        if self._num_next:
            self._is_seen = self._part == _FORWARD and not self._is_late
        if self._renamed:  # it is none
            self._codes[self._begun_at : self._begun_at + len(self._renamed)] = self._renamed
        elif self._part in (_REST, _OPTIMIZER):
            self._begin_forward()
        self._num_next, self._renamed, self._data_at = 0, [], _NOWHERE
        self._is_evaluated = self._is_validating = self._is_called = False
        self._mark(_BACKWARD)
        timings = self._timings
        assert timings is not None
        timings.part = _BACKWARD
        timings.begin_backward(is_exchanged)
        return True

    def _begin_forward(self) -> None:
        """The forward pass has begun unseen, when its data were there."""
        if self._data_at != _NOWHERE and not self._renamed:
            self._codes[self._data_at] = _FORWARD

    def within_backward(self) -> None:
        """The backward pass has computed a gradient. Called only on several ranks."""
        if self._timings is not None:
            self._timings.within_backward()

    def end_backward(self) -> None:
        """The backward pass is over, with the exchange of its gradients."""
        assert self._timings is not None
        self._timings.end_exchange()
        self._mark(_OPTIMIZER if self._stepping else _REST)
        if not self._has_data:
            self.arm()
        if len(self._at) > _MOST_MARKS:
            self.flush()

    def begin_step(self, optimizer: Any) -> None:
        """An optimizer steps. A step that another class extends calls this twice."""
        self._stepping = id(optimizer)
        if self._part != _OPTIMIZER:
            self._before_step = self._part if self._part == _BACKWARD else _REST
            self._mark(_OPTIMIZER)

    def end_step(self, optimizer: Any) -> None:
        """It has stepped: the batch ends, unless another optimizer steps for it too."""
        if self.thread == 0:
            if not self._has_own_steps:
                self._steps += 1
                self._begin(optimizer)
            return
        if self.thread != get_ident() or self._stepping != id(optimizer):
            return
        self._stepping = 0
        if self._has_own_steps:
            self._mark(self._before_step)
            return
        stepped = id(optimizer)
        if stepped in self._closers or not self._closers:
            if self._closers == {stepped}:
                self._closer = stepped
            self._closers = {stepped}
        else:  # another one, for the same batch
            self._closers.add(stepped)
            self._closer = stepped
            if self._end_at != _NOWHERE:
                assert self._timings is not None
                self._codes[self._end_at] = _REST
                self._timings.join_batches()
        self._end_batch(may_flush=stepped == self._closer)
        if self._before_step == _BACKWARD:
            self._mark(_BACKWARD)

    def end_own_batch(self) -> None:
        """The loop says that a batch is over (`profiler.step()`)."""
        is_timed = self.thread == get_ident()
        if self.thread == 0 or (is_timed and not self._has_own_steps):
            self._has_own_steps = True  # steps of optimizers that were counted are no batches
            self._steps = 1
            self._begin(None)
        elif is_timed:
            self._end_batch(may_flush=True)

    def _end_batch(self, may_flush: bool) -> None:
        assert self._timings is not None
        self._end_at = len(self._at)
        self._timings.end_batch(0)
        self._part = _REST
        has_data, self._has_data = self._has_data, False
        if may_flush and perf_counter_ns() - self._flushed_at >= PERIOD_NS:
            self.flush()
        if not has_data:
            self.arm()

    @contextmanager
    def timed_block(self, part: str) -> Iterator[None]:
        """Time the block as one part that includes all parts within it."""
        if self._timings is None or self.thread != get_ident():
            yield
            return
        self.disarm()
        self._forget_marks()
        outer, self.thread = self._part, -1
        self._timings.part = outer
        try:
            with self._timings.timed_block(part):
                yield
        finally:
            self.thread, self._part = get_ident(), outer
            self.arm()

    def _mark(self, code: int) -> None:
        self._part = code
        self._at.append(self._now())
        self._codes.append(code)

    def _rename(self) -> None:
        """The data since the last backward pass are those of a validation."""
        begun = self._begun_at
        self._is_validating = True
        if begun == _NOWHERE:
            self._mark(_VALIDATION)
            return
        self._renamed = self._codes[begun:]
        self._codes[begun:] = [_VALIDATION] * len(self._renamed)
        self._part = _VALIDATION
