"""What marks are made of: times of the host, or events in the stream of a GPU, read later.

A GPU works on after the call that started its work has returned. So the marks of a rank that
trains on one are events in its stream: a part takes as long as the device works on it, or waits
for the host in it. What the host does while the device is busy takes no time of the trial's.

An event has a time once the device has come to it, and nothing waits for that: marks are read
when they are done, at a flush that has waited for the metrics anyway. Torch tells the time from
one event to another; what time of the host's it was follows from the host's times when the events
were recorded, each of which came before its event:

    time of event i  =  offset + time from the first one,  with the least offset that puts none
                        of them before it was recorded

The device has nothing to do after each flush, so one of its events at least came at once, and the
offset is right to some microseconds; clocks that drift apart are set right at every flush.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns
from typing import Any

import numpy
import torch

from det_jupyter.pytorch.timings.intervals import Numbers

_NS_PER_MS = 1e6


class HostClock:
    """Marks that are times.

    Attributes:
        is_host: Marks are the host's times in nanoseconds.
        waits: Let the device finish before each mark, where there is one.
    """

    is_host = True
    waits = False

    def __init__(self, clock: Callable[[], int] = perf_counter_ns) -> None:
        self.mark = clock  # returns a mark for this moment; later ones are not smaller

    def count_done(self, marks: Numbers) -> int:
        """Return how many of these marks, from the first on, have a time already."""
        return len(marks)

    def read(self, marks: Numbers) -> Numbers:
        """Return the times of marks that are done, in nanoseconds, ascending."""
        return marks

    def forget(self, before: int) -> None:
        """Forget the marks before this one, which are not read again."""


class DeviceClock:
    """Marks that are events in the current stream of a GPU, by number; used as a HostClock is.

    Args:
        make_event: Returns a new event that can be timed.
        synchronize: Waits for the device.
        clock: Of the host.
    """

    is_host = False

    def __init__(
        self,
        make_event: Callable[[], Any],
        synchronize: Callable[[], object],
        clock: Callable[[], int] = perf_counter_ns,
    ) -> None:
        self.waits = False
        self._make_event = make_event
        self._synchronize = synchronize
        self._clock = clock
        self._first = 0  # number of the first event that is kept
        self._events: deque[Any] = deque()
        self._recorded_at: deque[int] = deque()
        self._free: list[Any] = []

    @classmethod
    def of(cls, device: torch.device) -> DeviceClock:
        """Return the clock of a CUDA device."""
        make_event = partial(torch.cuda.Event, enable_timing=True)
        return cls(make_event, partial(torch.cuda.synchronize, device))

    def mark(self) -> int:
        if self.waits:
            self._synchronize()
        event = self._free.pop() if self._free else self._make_event()
        self._recorded_at.append(self._clock())
        event.record()
        self._events.append(event)
        return self._first + len(self._events) - 1

    def count_done(self, marks: Numbers) -> int:
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

    def forget(self, before: int) -> None:
        for _ in range(before - self._first):
            self._free.append(self._events.popleft())
            self._recorded_at.popleft()
        self._first = before


Clock = HostClock | DeviceClock
