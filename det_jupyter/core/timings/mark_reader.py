"""Converts a rank's marks to records.

Marks of the host are read at once, and so are the times at which other ranks arrived at an
exchange. Marks of a GPU have times only once the GPU has reached them; only then does each rank
share when it arrived at exchanges. At the next flush all ranks have done so: therefore the record
of an interval is pending until then, and written one flush late.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

import numpy

from det_jupyter.contract.run.journal import BatchTimings, PartTimes, StepTimes
from det_jupyter.core.timings.arrivals import NO_NUMBER, Arrivals
from det_jupyter.core.timings.clocks import Clock
from det_jupyter.core.timings.intervals import (
    CODES,
    END,
    Codes,
    Interval,
    Numbers,
    Taken,
    by_section,
    to_rows,
)

_NEXT, _EXCHANGE = CODES["dataloader_next"], CODES["exchange"]


class OwnTimes(Protocol):
    """The source of the trial's own sections and counters: a ProfilerContext."""

    def take(self) -> tuple[list[Taken], dict[str, float]]:
        """Return and clear the recorded sections, and the sums of counters."""


class Marks:
    """The marks since the last flush.

    Attributes:
        at: The clock's marks; the first one begins the interval.
        codes: The part that begins at each mark.
        exchanges: The numbers of the exchanges among them.
    """

    def __init__(self) -> None:
        self.at: list[int] = []
        self.codes: list[int] = []
        self.exchanges: list[int] = []

    def lengths(self) -> tuple[int, int]:
        """Return the numbers of marks and of exchanges."""
        return len(self.at), len(self.exchanges)

    def cut(self, num: int, num_exchanges: int) -> None:
        """Delete all but the first `num` marks and `num_exchanges` exchanges."""
        del self.at[num:], self.codes[num:], self.exchanges[num_exchanges:]


class MarkReader:
    """Converts one rank's marks to records.

    Args:
        clock: The clock that has made the marks.
        arrivals: The times at which ranks arrived at exchanges; None if ranks do not share them.
        profiler: The source of the trial's own sections and counters.
        steps: Batches that earlier runs have trained.
        window: First and last index of the batches that get raw rows; None for none.
        begins: The code that begins a batch.

    Attributes:
        steps: Batches trained before the marks that are not read yet.
    """

    def __init__(
        self,
        clock: Clock,
        arrivals: Arrivals | None,
        profiler: OwnTimes,
        steps: int,
        window: tuple[int, int] | None,
        begins: int = _NEXT,
    ) -> None:
        self._clock = clock
        self._arrivals = arrivals
        self._profiler = profiler
        self.steps = steps
        self._window = window
        self._begins = begins
        self._pending: Callable[[], StepTimes] | None = None

    def read(self, marks: Marks, samples: list[int]) -> list[StepTimes | BatchTimings]:
        """Return the records of the marks that have times, and remove all but the last of these.

        Args:
            marks: The marks of this rank; called between batches.
            samples: Records that all ranks trained, by batch; those of batches read are removed.
        """
        # An interrupt that the trial catches may come between a time and its code; later marks
        # are pairs again.
        del marks.at[: len(marks.at) - len(marks.codes)]
        at, codes = self._readable(marks)
        if len(at) < 2:
            return []
        interval = Interval(self._clock.read(at), codes[:-1], self.steps, self._begins)
        trained = samples[: interval.batches]
        own = self._sections_and_counters(marks.at[0])
        numbers = self._take_numbers(interval, marks.exchanges)
        found = self.take_pending()
        self._pending = partial(self._record, interval, numbers, sum(trained), *own)
        if self._clock.is_host:
            found = self.take_pending()
        if self._window is not None:
            rows = to_rows(interval, trained, *self._window)
            found += [rows] if rows is not None else []
        self.steps += interval.batches
        num_read = len(at) - 1
        del samples[: interval.batches], marks.at[:num_read], marks.codes[:num_read]
        self._clock.drop(marks.at[0])
        return found

    def take_pending(self) -> list[StepTimes | BatchTimings]:
        """Return the pending record, if there is one; all ranks must have flushed since."""
        record, self._pending = self._pending, None
        return [] if record is None else [record()]

    def _record(
        self,
        interval: Interval,
        exchanges: Numbers,
        samples: int,
        sections: dict[str, PartTimes],
        counters: dict[str, float],
    ) -> StepTimes:
        batches = interval.batches
        if self._arrivals is not None and len(exchanges):
            interval = interval.split(self._arrivals.last(exchanges))
        return StepTimes(
            at=time.time(),
            first=interval.steps + (1 if batches else 0),
            batches=batches,
            samples=samples,
            seconds=interval.seconds,
            parts=interval.parts() | sections,
            counters=counters,
            own_loop=self._begins == END,
        )

    def _readable(self, marks: Marks) -> tuple[Numbers, Codes]:
        """Return the marks that have times; if not all have, up to the beginning of a batch."""
        # Takes half as long as numpy.array.
        at = numpy.fromiter(marks.at, numpy.int64, len(marks.at))
        num = self._clock.count_done(at)
        codes = numpy.frombuffer(bytes(marks.codes[:num]), numpy.uint8)
        begins = self._begins
        if num < len(at) and (begins == END or (codes == _NEXT).sum() > (codes == END).sum()):
            num = int(numpy.flatnonzero(codes == begins)[-1]) + 1 if begins in codes else 0
        return at[:num], codes[:num]

    def _take_numbers(self, interval: Interval, exchanges: list[int]) -> Numbers:
        """Remove and return the numbers of the interval's exchanges.

        Marks of a GPU have times only now: they are written to the page that ranks share.
        """
        times = interval.times[:-1][interval.codes == _EXCHANGE]
        numbers = exchanges[: len(times)]
        del exchanges[: len(times)]
        if self._arrivals is not None and not self._clock.is_host:
            for number, at in zip(numbers, times.tolist(), strict=True):
                if number != NO_NUMBER:
                    self._arrivals.write(number, at)
        return numpy.array(numbers, numpy.int64)

    def _sections_and_counters(self, first: int) -> tuple[dict[str, PartTimes], dict[str, float]]:
        """Return the times of the trial's own sections, and its counters.

        The clock has dropped the marks before `first`: such sections have the host's time.
        """
        taken, counters = self._profiler.take()
        lasted = []
        for name, duration, *between in taken:
            marks = numpy.array(between)
            if between[0] > first and self._clock.count_done(marks) == len(marks):
                begun, over = self._clock.read(marks).tolist()
                duration = max(duration, over - begun)  # the device's, if that is longer
            lasted.append((name, duration))
        return by_section(lasted), counters
