"""What marks are made of: the host's clock, or events in the stream of a GPU, read later.

A GPU works on after the call that started its work has returned. So the marks of a rank that
trains on one are events in its stream: a part takes as long as the device works on it, or waits
for the host meanwhile. An event has a time once the device has come to it; nothing waits for that.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Protocol

from det_jupyter.pytorch.timings.intervals import Numbers


class Clock(Protocol):
    """Makes marks, and reads them."""

    def mark(self) -> int:
        """Return a mark for this moment."""

    def count_done(self, marks: Numbers) -> int:
        """Return how many of these marks, from the first on, have a time already."""

    def read(self, marks: Numbers) -> Numbers:
        """Return the times of marks that are done, in nanoseconds, ascending."""


class HostClock:
    """Marks that are times."""

    def __init__(self, clock: Callable[[], int] = perf_counter_ns) -> None:
        self.mark = clock

    def count_done(self, marks: Numbers) -> int:
        """See Clock."""
        return len(marks)

    def read(self, marks: Numbers) -> Numbers:
        """See Clock."""
        return marks
