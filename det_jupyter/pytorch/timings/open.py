"""Opening the timings of a rank; `NoTimings` where they are not wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ParamSpec, TypeVar

from det_jupyter.config.sections import Profiling
from det_jupyter.core import RecordSink
from det_jupyter.pytorch.timings.arrivals import Arrivals
from det_jupyter.pytorch.timings.clocks import DeviceClock, HostClock
from det_jupyter.pytorch.timings.marks import Timings

P = ParamSpec("P")
T = TypeVar("T")


class NoTimings:
    """Has the methods of Timings, and functions stay as they are: a loop has no timers."""

    end_batch = None

    def timed(self, part: str, function: Callable[P, T]) -> Callable[P, T]:
        return function

    def exchanged(self, function: Callable[P, T]) -> Callable[P, T]:
        return function

    def whole(self, part: str) -> AbstractContextManager[None]:
        return nullcontext()

    def over(self, batches: Iterable[T]) -> Iterable[T]:
        return batches

    def start(self) -> None:
        pass

    def journaling(
        self, context: Any, sink: RecordSink, barrier: Callable[[], None]
    ) -> AbstractContextManager[None]:
        return context.profiler.driven(is_on=False)  # type: ignore[no-any-return]

    def journal_batches(self, sink: RecordSink) -> None:
        pass

    def journal_if_due(self, sink: RecordSink) -> None:
        pass


AnyTimings = Timings | NoTimings
NO_TIMINGS = NoTimings()


def open_timings(profiling: Profiling, context: Any, steps: int) -> AnyTimings:
    """Return what times this rank, after so many batches of earlier runs. Collective."""
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
