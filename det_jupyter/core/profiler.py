"""A trial's own sections and counters, beside the parts of its time (measures.py).

The training loop takes them with each of its records. In a function, which has no loop of ours,
they are written about once a second, by the call that finds a record due. Any thread may use them:
what they share are queues, whose operations are atomic. A copy in another process (a worker of a
data loader) takes nothing: its time is not the rank's.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import ceil, isfinite
from threading import Lock, get_ident
from time import perf_counter_ns
from typing import Any, Self

import numpy
from numpy.typing import NDArray

from det_jupyter.contract.run.journal import PartTimes, StepTimes
from det_jupyter.contract.values.measures import SECTION
from det_jupyter.core.argument_checks import is_number, shown
from det_jupyter.core.journal import RecordSink

PERIOD_NS = 1_000_000_000
_LEAST_INTERVAL_S = 0.1
MAX_NAMES, MAX_LENGTH = 64, 100
_NS_PER_S = 1e9

Taken = tuple[str, int, int, int]  # name, nanoseconds of the host, and marks of beginning and end


class ProfilerContext:
    """Times sections and counts what a trial wants to be counted; both end up in its timings.

    Args:
        sink: Gets the records of a function; None: nothing is recorded until a loop does it.
        steps: Returns how many steps are completed.
    """

    def __init__(
        self, sink: RecordSink | None = None, steps: Callable[[], int] = lambda: 0
    ) -> None:
        self._sink = sink
        self._steps = steps
        self._process = os.getpid()
        self._is_on = sink is not None
        self._is_driven = False  # by a loop, which takes what there is
        self._mark: Callable[[], int] | None = None
        self._thread = 0  # whose sections have marks
        self._sections: deque[Taken] = deque()
        self._counts: deque[tuple[str, float]] = deque()
        self._names: set[str] = set()
        self._writing = Lock()
        self._began_at = perf_counter_ns()

    def on(self, sampling_interval: float = 1, samples_per_report: int = 10) -> None:
        """Record sections and counters, as is done from the beginning.

        Metrics of the system are sampled by the agent, as the section `profiling` of the
        configuration says; the arguments, Determined's, are checked and change nothing there.

        Args:
            sampling_interval: Seconds, at least 0.1.
            samples_per_report: At least 1.

        Raises:
            ValueError: They are not.
        """
        if not is_number(sampling_interval) or not sampling_interval >= _LEAST_INTERVAL_S:
            raise ValueError(
                f"profiler.on: sampling_interval: got {shown(sampling_interval)}, expected a "
                f"number of seconds, at least {_LEAST_INTERVAL_S}"
            )
        if not isinstance(samples_per_report, int) or not samples_per_report >= 1:
            raise ValueError(
                f"profiler.on: samples_per_report: got {shown(samples_per_report)}, expected a "
                "whole number, at least 1"
            )
        self._is_on = self._sink is not None

    def off(self) -> None:
        """Record no more sections and counters, until `on`. May be called twice."""
        if not self._is_driven:
            self.flush()
        self._is_on = False

    def section(self, name: str) -> Section:
        """Return a context manager that times its block, as a part of the trial's timings.

        Sections may be nested; each has its whole time. On a GPU, a section lasts until the
        device has done what it was given in it.

        Args:
            name: Of the section, such as "augment"; at most 100 characters.
        """
        self._check_name("section", name)
        return Section(self, name)

    def count(self, name: str, amount: float = 1) -> None:
        """Add to a counter, whose growth is shown per second.

        Args:
            name: Of the counter, such as "tokens"; at most 100 characters.
            amount: A number; of a tensor, `.item()`, which waits for its device.
        """
        self._check_name("count", name)
        if not is_number(amount) or not isfinite(amount):
            raise ValueError(
                f"profiler.count: {name}: got {type(amount).__name__} {amount!r:.60}, expected "
                "a finite number"
            )
        if self._is_here():
            self._counts.append((name, amount))
            self._write_if_due(perf_counter_ns())

    def took(self, name: str, began_at: int, began: int) -> None:
        """Note that a section ends (called by it)."""
        if self._is_here():
            now = perf_counter_ns()
            ended = self.mark() if began else 0
            self._sections.append((name, now - began_at, began, ended))
            self._write_if_due(now)

    def mark(self) -> int:
        """Return a mark of the loop's for this moment; 0 if it needs none here."""
        return self._mark() if self._mark is not None and get_ident() == self._thread else 0

    @contextmanager
    def driven(
        self, *, is_on: bool = True, mark: Callable[[], int] | None = None
    ) -> Iterator[None]:
        """Leave it to the block to take what there is (called by the loop).

        Args:
            is_on: Whether anything is recorded.
            mark: Makes marks that can be read later, in the loop's thread; None: host's times do.
        """
        before = self._is_on, self._is_driven, self._mark, self._thread
        self._is_on, self._is_driven, self._mark, self._thread = is_on, True, mark, get_ident()
        try:
            yield
        finally:
            self._is_on, self._is_driven, self._mark, self._thread = before

    def take(self) -> tuple[list[Taken], dict[str, float]]:
        """Return what there is since the last time."""
        sections = [self._sections.popleft() for _ in range(len(self._sections))]
        counters: dict[str, float] = {}
        for name, amount in [self._counts.popleft() for _ in range(len(self._counts))]:
            counters[name] = counters.get(name, 0) + amount
        return sections, counters

    def flush(self) -> None:
        """Write what a function has recorded since the last time, if it has."""
        with self._writing:
            sections, counters = self.take()
            now = perf_counter_ns()
            elapsed, self._began_at = now - self._began_at, now
            if self._sink is None or not (sections or counters):
                return
            parts = {"rest": summary([elapsed])} | by_section(
                [(name, host) for name, host, *_ in sections]
            )
            self._sink.write(
                StepTimes(
                    at=time.time(),
                    first=self._steps(),
                    batches=0,
                    samples=0,
                    seconds=elapsed / _NS_PER_S,
                    parts=parts,
                    counters=counters,
                )
            )

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]  # the copy is a new object

    def _is_here(self) -> bool:
        return self._is_on and os.getpid() == self._process

    def _write_if_due(self, now: int) -> None:
        if not self._is_driven and now - self._began_at >= PERIOD_NS:
            self.flush()

    def _check_name(self, method: str, name: str) -> None:
        """Check a name, once."""
        if isinstance(name, str) and name in self._names:
            return
        where = f"profiler.{method}"
        if not isinstance(name, str) or not 0 < len(name) <= MAX_LENGTH:
            raise ValueError(
                f"{where}: got {name!r:.120} as name, expected 1 to {MAX_LENGTH} characters"
            )
        if len(self._names) == MAX_NAMES:
            raise ValueError(
                f"{where}: {name!r} is one name more than the {MAX_NAMES} that a trial can have; "
                "take the same name for what is alike"
            )
        self._names.add(name)


class Section:
    """Times its block, also one that raises."""

    __slots__ = ("_began", "_began_at", "_name", "_profiler")

    def __init__(self, profiler: ProfilerContext, name: str) -> None:
        self._profiler = profiler
        self._name = name

    def __enter__(self) -> Self:
        self._began = self._profiler.mark()
        self._began_at = perf_counter_ns()
        return self

    def __exit__(self, *error: object) -> None:
        self._profiler.took(self._name, self._began_at, self._began)


def by_section(taken: Sequence[tuple[str, int]]) -> dict[str, PartTimes]:
    """Return the times of sections, given by name and nanoseconds, as parts of a record."""
    durations: dict[str, list[int]] = {}
    for name, duration in taken:
        durations.setdefault(name, []).append(duration)
    return {f"{SECTION}{name}": summary(each) for name, each in durations.items()}


def summary(durations: Sequence[int] | NDArray[numpy.int64]) -> PartTimes:
    """Return number, sum, percentiles and maximum of durations in nanoseconds, in seconds."""
    num = len(durations)
    places = [ceil(num * 0.5) - 1, ceil(num * 0.95) - 1, num - 1]
    ordered = numpy.sort(durations)
    p50, p95, longest = (int(ordered[place]) / _NS_PER_S for place in places)
    return PartTimes(num, int(ordered.sum()) / _NS_PER_S, p50, p95, longest)
