"""Clocks that make marks: times of the host, or events in the stream of a GPU that are read later.

A GPU works on after the call that started its work has returned. So the marks of a rank that
trains on a GPU are events in its stream: a part of a batch takes as long as the device works on
it, or waits for the host in it. Host work that overlaps with device work is not measured.

An event has a time once the device has reached it. Nothing waits for that: marks are read once
they are reached, at a flush that has waited for the metrics anyway. Torch returns the time from
one event to another. The host's time of an event follows from the times at which the host recorded
the events, each of which precedes its event:

    time of event i  =  offset + time from the first one,  with the least offset that puts none
                        of them before it was recorded

While the stream is captured for a CUDA graph, an event would become a part of the graph, and none
may be queried: a mark then repeats the last one, and no mark has a time.

The device is idle after each flush, so at least one event is reached as soon as it is recorded,
and the offset is exact to some microseconds. It is computed anew at every flush, so clocks that
drift do no harm.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy

from det_jupyter.core.timings.intervals import Numbers

if TYPE_CHECKING:  # torch takes seconds to import, and scripts may not need it
    import torch

_NS_PER_MS = 1e6


class HostClock:
    """Marks that are times of the host.

    Attributes:
        is_host: Whether marks are the host's times in nanoseconds.
        waits: Whether each mark waits until the device has finished; without effect here.
    """

    is_host = True
    waits = False

    def __init__(self, clock: Callable[[], int] = perf_counter_ns) -> None:
        self.mark = clock  # returns a mark for this moment; later ones are not smaller

    def count_done(self, marks: Numbers) -> int:
        """Return how many of these marks, from the first on, have a time already (all)."""
        return len(marks)

    def read(self, marks: Numbers) -> Numbers:
        """Return the times of marks that have one, in nanoseconds, ascending."""
        return marks

    def drop(self, before: int) -> None:
        """Release what the marks before this one hold; they are not read again."""


class DeviceClock:
    """Marks that are numbers of events in a GPU's current stream; has the methods of HostClock.

    Args:
        make_event: Returns a new event that can be timed.
        synchronize: Waits for the device.
        clock: The host's, in nanoseconds.
        is_capturing: Returns whether the current stream is captured for a CUDA graph.
    """

    is_host = False

    def __init__(
        self,
        make_event: Callable[[], Any],
        synchronize: Callable[[], object],
        clock: Callable[[], int] = perf_counter_ns,
        *,
        is_capturing: Callable[[], bool] = bool,
    ) -> None:
        self.waits = False
        self._make_event = make_event
        self._synchronize = synchronize
        self._clock = clock
        self._is_capturing = is_capturing
        self._first = 0  # number of the first event that is kept
        self._events: deque[Any] = deque()
        self._recorded_at: deque[int] = deque()
        self._free: list[Any] = []

    @classmethod
    def of(cls, device: torch.device) -> DeviceClock:
        """Return the clock of a CUDA device."""
        import torch

        make_event = partial(torch.cuda.Event, enable_timing=True)
        return cls(
            make_event,
            partial(torch.cuda.synchronize, device),
            is_capturing=torch.cuda.is_current_stream_capturing,
        )

    def mark(self) -> int:
        if self._events and self._is_capturing():
            return self._first + len(self._events) - 1
        if self.waits:
            self._synchronize()
        event = self._free.pop() if self._free else self._make_event()
        self._recorded_at.append(self._clock())
        event.record()
        self._events.append(event)
        return self._first + len(self._events) - 1

    def count_done(self, marks: Numbers) -> int:
        if self._is_capturing():
            return 0
        kept = list(self._events)
        events = [kept[mark - self._first] for mark in marks.tolist()]
        return bisect_left(events, True, key=lambda event: not event.query())

    def read(self, marks: Numbers) -> Numbers:
        indices = [mark - self._first for mark in marks.tolist()]
        events = list(self._events)
        recorded_at = numpy.array(self._recorded_at, numpy.int64)[indices]
        first = events[indices[0]]
        since_ms = [first.elapsed_time(events[index]) for index in indices[1:]]
        since = numpy.array([0.0, *since_ms]) * _NS_PER_MS
        times = (recorded_at - since).max() + since
        return numpy.maximum.accumulate(times.astype(numpy.int64))

    def drop(self, before: int) -> None:
        for _ in range(before - self._first):
            self._free.append(self._events.popleft())
            self._recorded_at.popleft()
        self._first = before


Clock = HostClock | DeviceClock
