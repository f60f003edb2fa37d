"""How long the parts of a training batch take, batch by batch, on the chief.

    batch:       dataloader_next | to_device | train_batch                   | step_lr_schedulers
                                             |   .backward .sync_optimizers  |
    a report:    from_device | average_training_metrics | reduce_metrics

Parts are timed by putting something around the functions that do them, so a run without timings
has none of this in its loop. What is called several times in a batch is summed; what a report
does belongs to the batch before it; what else is done between batches (validation) to none.

A GPU works on after the call that started its work has returned. With `sync_timings` each timer
waits for it, which slows the training. Without, only what is the host's own time is recorded.

Durations stay integers, in nanoseconds, up to the journal: as text, a float costs ten times as
much, and seven of them would be more than all the rest that is done here for a batch.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from time import perf_counter_ns
from typing import Any, ParamSpec, TypeVar

import torch

from det_jupyter.config.sections import Profiling
from det_jupyter.records import BatchTimings

P = ParamSpec("P")
T = TypeVar("T")

_METHODS = {  # of the context, by the part that they are
    "to_device": "to_device",
    "train_batch.backward": "backward",
    "train_batch.sync_optimizers": "step_optimizer",
}
_NEXT, _TRAIN, _WHOLE = "dataloader_next", "train_batch", "batch"
_OF_BATCH = (_NEXT, _TRAIN, *_METHODS, "step_lr_schedulers", _WHOLE)
_OF_REPORT = ("from_device", "average_training_metrics", "reduce_metrics")
_PARTS = (*_OF_BATCH, *_OF_REPORT)
_WITHOUT_WAITING = {_NEXT, _TRAIN, _WHOLE}  # measurable without waiting for the GPU
_WIDTH = len(_OF_BATCH)
_LAST = _WIDTH - 1


class Timings:
    """Times the batches from `begin_on_batch` to `end_after_batch`, both included.

    Args:
        profiling: Which batches, and whether to wait for the GPU.
        device: Where they are trained.
        clock: Nanoseconds from any moment on.
    """

    def __init__(
        self,
        profiling: Profiling,
        device: torch.device,
        *,
        clock: Callable[[], int] = perf_counter_ns,
    ) -> None:
        self._clock = clock
        end = profiling.end_after_batch
        self._begin = profiling.begin_on_batch
        self._end = sys.maxsize if end is None else end
        is_gpu = device.type == "cuda"
        waits = is_gpu and profiling.sync_timings
        self._wait = partial(torch.cuda.synchronize, device) if waits else None
        self._can_time = set(_PARTS) if waits or not is_gpu else _WITHOUT_WAITING
        self._timed = {_NEXT, _WHOLE}
        self._is_open = False  # whether this batch, with the report after it, is recorded
        self._began_at = 0
        self._steps = 0  # completed with the latest batch that is recorded
        self._zeros = [0] * len(_PARTS)
        self._now = list(self._zeros)  # durations of this batch and of the report after it
        self._rows: list[int] = []  # `_WIDTH` durations of each batch since the last flush
        self._records: list[int] = []

    @classmethod
    def open(cls, profiling: Profiling, device: torch.device, *, is_chief: bool) -> Timings | None:
        """Return what times this rank's batches; None if nothing of it is recorded."""
        return cls(profiling, device) if profiling.enabled and is_chief else None

    def watch(self, context: Any) -> None:
        """Time what a trial calls of its context, unless it has kept a method from before."""
        for part, method in _METHODS.items():
            # Of the class: an earlier training may have put its own timers around the method.
            function = getattr(type(context), method).__get__(context)
            vars(context)[method] = self.timed(part, function)

    def timed(self, part: str, function: Callable[P, T]) -> Callable[P, T]:
        """Return the function with a timer around it.

        Args:
            part: What it is a part of: one of the names above.
            function: A function that is called within the batches or between them.
        """
        if part not in self._can_time:
            return function
        self._timed.add(part)
        now, index = self._now, _PARTS.index(part)
        clock, wait = self._clock, self._wait

        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            began_at = clock()
            result = function(*args, **kwargs)
            now[index] += clock() - began_at
            return result

        if wait is None:
            return run

        def run_and_wait(*args: P.args, **kwargs: P.kwargs) -> T:
            if not self._is_open:
                return function(*args, **kwargs)
            began_at = clock()
            result = function(*args, **kwargs)
            wait()
            now[index] += clock() - began_at
            return result

        return run_and_wait

    def over(self, batches: Iterable[T], first: int) -> Iterator[T]:
        """Yield the batches, of which the next one has index `first`; `end_batch` ends each."""
        now, zeros, clock = self._now, self._zeros, self._clock
        began_at = clock()
        for index, batch in enumerate(batches, first):
            self._is_open = is_open = self._begin <= index <= self._end
            if is_open:
                now[:] = zeros
                now[0] = clock() - began_at
                self._began_at = began_at
                self._steps = index + 1
            yield batch
            began_at = clock()

    def end_batch(self, records: int) -> None:
        """Note that the batch is done, of which all ranks together trained so many records."""
        if self._is_open:
            now = self._now
            now[_LAST] = self._clock() - self._began_at
            self._rows += now[:_WIDTH]
            self._records.append(records)

    def flush(self) -> BatchTimings | None:
        """Return the timings since the last flush, None if there are none. Between batches."""
        if not self._records:
            return None
        rows, records = self._rows, self._records
        self._rows, self._records = [], []
        columns: dict[str, list[int | None]] = {
            part: list(rows[index::_WIDTH])
            for index, part in enumerate(_OF_BATCH)
            if part in self._timed
        }
        return BatchTimings(
            at=time.time(),
            first=self._steps - len(records) + 1,
            records=records,
            durations_ns=columns | self._of_report(len(records)),
        )

    def _of_report(self, num_batches: int) -> dict[str, list[int | None]]:
        """Return what the report after the last of these batches took, if there was one."""
        durations = zip(_OF_REPORT, self._now[_WIDTH:], strict=True)
        gap: list[int | None] = [None] * (num_batches - 1)
        return {part: [*gap, duration] for part, duration in durations if duration}
