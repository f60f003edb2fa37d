"""Sections and counters that a trial times and counts itself, shown in its timings.

Our training loop writes them with each of its records. In a function or script they are written
about once a second, by the call that finds a record due. Any thread may use them: the shared state
is in queues, whose operations are atomic. A copy in another process (a worker of a data loader)
records nothing, since its time is not the rank's.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isfinite
from threading import Lock, get_ident
from time import perf_counter_ns
from typing import Any, Self

from det_jupyter.contract.run.journal import StepTimes
from det_jupyter.core.argument_checks import is_number, quoted
from det_jupyter.core.journal import RecordSink
from det_jupyter.core.timings.any_loop import LoopTimings
from det_jupyter.core.timings.intervals import PERIOD_NS, Taken, by_section, summary

_LEAST_INTERVAL_S = 0.1
MAX_NAMES, MAX_LENGTH = 64, 100
_NS_PER_S = 1e9


class ProfilerContext:
    """Times sections and adds up counters of a trial, for its timings.

    Args:
        sink: Stores the records of a function; None: nothing is recorded except in `driven`.
        steps: Returns the steps completed.
    """

    def __init__(
        self, sink: RecordSink | None = None, steps: Callable[[], int] = lambda: 0
    ) -> None:
        self._sink = sink
        self._steps = steps
        self._process = os.getpid()
        self._is_on = sink is not None
        self._is_driven = False  # whether a training loop calls `take`
        self._loop: LoopTimings | None = None
        self._mark: Callable[[], int] | None = None
        self._thread = 0  # the thread whose sections have marks
        self._sections: deque[Taken] = deque()
        self._counts: deque[tuple[str, float]] = deque()
        self._names: set[str] = set()
        self._writing = Lock()
        self._began_at = perf_counter_ns()

    def on(self, sampling_interval: float = 1, samples_per_report: int = 10) -> None:
        """Record sections and counters again after `off`.

        System metrics are sampled by the agent, as configured in the section `profiling`. The
        arguments are those of Determined; they are checked and have no effect.

        Args:
            sampling_interval: Seconds, at least 0.1.
            samples_per_report: At least 1.

        Raises:
            ValueError: An argument is smaller or not a number.
        """
        if not is_number(sampling_interval) or not sampling_interval >= _LEAST_INTERVAL_S:
            raise ValueError(
                f"profiler.on: sampling_interval: got {quoted(sampling_interval)}, expected a "
                f"number of seconds, at least {_LEAST_INTERVAL_S}"
            )
        if not isinstance(samples_per_report, int) or not samples_per_report >= 1:
            raise ValueError(
                f"profiler.on: samples_per_report: got {quoted(samples_per_report)}, expected a "
                "whole number, at least 1"
            )
        self._is_on = self._sink is not None

    def off(self) -> None:
        """Stop recording sections and counters, until `on`. Idempotent."""
        self.flush()
        self._is_on = False

    def section(self, name: str) -> TimedSection:
        """Return a context manager that times its block, as a part of the trial's timings.

        Sections may be nested; the time of the inner one is part of the outer one's too. On a
        GPU, a section lasts until the device has completed the work that it was given in it.

        Args:
            name: Name of the section, such as "augment"; at most 100 characters.
        """
        self._check_name("section", name)
        return TimedSection(self, name)

    def count(self, name: str, amount: float = 1) -> None:
        """Add to a counter, which is shown per second.

        Args:
            name: Name of the counter, such as "tokens"; at most 100 characters.
            amount: A number. For a tensor pass `.item()`, which waits for its device.
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

    def step(self) -> None:
        """End a batch in the timings; call it after each step of the training.

        Only for loops whose steps are not detected: several optimizers that step in turn with data
        of their own, a compiled step, or no optimizer of torch. Steps of optimizers are not
        counted any more after the first call. Not collective, but all ranks have to call it.
        """
        if self._loop is not None:
            self._loop.end_own_batch()

    def follow(self, loop: LoopTimings) -> None:
        """Write sections and counters with the records of this loop, once it is timed."""
        self._loop = loop
        loop.connect(self)

    def lead(self, mark: Callable[[], int] | None) -> None:
        """Stop writing records: the loop calls `take` from now on. `mark` is as in `driven`."""
        self._is_driven, self._mark, self._thread = True, mark, get_ident()

    def took(self, name: str, began_at: int, began: int) -> None:
        """Record a section that ends. Called by TimedSection."""
        if self._is_here():
            now = perf_counter_ns()
            ended = self.mark() if began else 0
            self._sections.append((name, now - began_at, began, ended))
            self._write_if_due(now)

    def mark(self) -> int:
        """Return a mark of the training loop for this moment; 0 if it needs none."""
        return self._mark() if self._mark is not None and get_ident() == self._thread else 0

    @contextmanager
    def driven(
        self, *, is_on: bool = True, mark: Callable[[], int] | None = None
    ) -> Iterator[None]:
        """Within the block, write no records: the caller calls `take`. Used by the loop.

        Args:
            is_on: Whether anything is recorded.
            mark: Returns marks (such as CUDA events) of sections in the loop's thread, whose times
                are read later; None: sections have host times.
        """
        before = self._is_on, self._is_driven, self._mark, self._thread
        if self._loop is not None:
            self._loop.close()
        self._is_on, self._is_driven, self._mark, self._thread = is_on, True, mark, get_ident()
        try:
            yield
        finally:
            self._is_on, self._is_driven, self._mark, self._thread = before
            if self._loop is not None:
                self._loop.resume()

    def take(self) -> tuple[list[Taken], dict[str, float]]:
        """Return and clear the recorded sections, and the sums of counters."""
        sections = [self._sections.popleft() for _ in range(len(self._sections))]
        counters: dict[str, float] = {}
        for name, amount in [self._counts.popleft() for _ in range(len(self._counts))]:
            counters[name] = counters.get(name, 0) + amount
        return sections, counters

    def flush(self) -> None:
        """Write a record with the sections and counters since the last one, if there are any."""
        if self._is_driven:
            if self._loop is not None:
                self._loop.flush()
            return
        if os.getpid() != self._process:
            return
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

    def close(self) -> None:
        """Write what was recorded, and record nothing more: the run is over."""
        try:
            self.flush()
        finally:
            self._is_on, self._sink, self._loop = False, None, None

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
        """Check a name, unless it was checked before."""
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


class TimedSection:
    """Times its block, even if the block raises."""

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
