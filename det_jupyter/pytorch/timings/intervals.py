"""From marks to records: what each part of an interval took. Pure.

    mark       when a part begins, and which; the one before ends there
    row        the marks from one `dataloader_next` to the next: a batch, with the event after it
    exchange   the marks at which this rank has arrived at an exchange with the others:

        this rank arrives        the last rank arrives        the exchange is over
               |    exchange_wait        |    exchange_transfer      |

Every nanosecond of an interval is in one part, so the parts sum to it. The durations of a part are
those of its rows: what a batch does twice is summed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Protocol

import numpy
from numpy.typing import NDArray

from det_jupyter.measures import PARTS
from det_jupyter.records import PartTimes, StepTimes

Numbers = NDArray[numpy.int64]
Codes = NDArray[numpy.uint8]

CODES = {part: code for code, part in enumerate(PARTS)}
END = len(PARTS)  # the rest, between the end of a batch and the beginning of the next
NUM_CODES = END + 1
UNKNOWN = -1  # when the last rank arrived
_NEXT, _REST = CODES["dataloader_next"], CODES["rest"]
_WAIT, _TRANSFER = CODES["exchange_wait"], CODES["exchange_transfer"]
_ALL = numpy.arange(NUM_CODES)
_LONGEST = 1 << 62  # comes after all durations
_NS_PER_S = 1e9


class LastArrivals(Protocol):
    """Knows when the last rank has arrived at an exchange."""

    def last(self, exchanges: Numbers) -> Numbers:
        """Return that for each of these exchanges; UNKNOWN where it is not known."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The marks of an interval.

    Args:
        times: Of the marks, in nanoseconds, ascending; the last one is the end of the interval.
        codes: What begins at each mark but the last.
        steps: `steps_completed` before the first batch that ends in it.
    """

    times: Numbers
    codes: Codes
    steps: int

    @property
    def batches(self) -> int:
        """Number of batches that ended in it."""
        return int((self.codes == END).sum())

    @property
    def seconds(self) -> float:
        """Its length."""
        return int(self.times[-1] - self.times[0]) / _NS_PER_S

    def split(self, last: Numbers) -> Interval:
        """Return the interval with what was exchanged in two parts: waiting and transfer.

        Args:
            last: When the last rank arrived at each exchange; UNKNOWN: it is not told apart.
        """
        at = numpy.flatnonzero(self.codes == CODES["exchange"])[: len(last)]
        at, last = at[last != UNKNOWN], last[last != UNKNOWN]
        codes = self.codes.copy()
        codes[at] = _WAIT
        middle = numpy.clip(last, self.times[at], self.times[at + 1])
        return Interval(
            numpy.insert(self.times, at + 1, middle),
            numpy.insert(codes, at + 1, _TRANSFER),
            self.steps,
        )

    def parts(self) -> dict[str, PartTimes]:
        """Return how long each part took that occurred.

        All at once: a part alone takes eight calls of numpy, each as long as ten batches' numbers.
        """
        durations, occurs = self.durations(), self._counted() > 0
        nums = occurs.sum(axis=0)
        ordered = numpy.sort(numpy.where(occurs, durations, _LONGEST), axis=0)
        places = [numpy.ceil(nums * share).astype(int) - 1 for share in (0.5, 0.95, 1.0)]
        columns = [durations.sum(axis=0), *(ordered[place, _ALL] for place in places)]
        seconds = (column / _NS_PER_S for column in columns)
        times = list(map(PartTimes, nums.tolist(), *(column.tolist() for column in seconds)))
        return {part: times[code] for part, code in CODES.items() if nums[code]}

    def rows(self) -> Numbers:
        """Return the row of each mark but the last; 0: before the first batch begins."""
        return numpy.cumsum(self.codes == _NEXT)

    def durations(self) -> Numbers:
        """Return nanoseconds by row and code."""
        # Floats are exact below 2**53.
        sums = self._counted(numpy.diff(self.times))
        return sums.astype(numpy.int64)

    def _counted(self, weights: Numbers | None = None) -> NDArray[Any]:
        rows = self.rows()
        codes = numpy.where(self.codes == END, _REST, self.codes)
        num_rows = int(rows[-1]) + 1
        counted = numpy.bincount(rows * NUM_CODES + codes, weights, num_rows * NUM_CODES)
        return counted.reshape(num_rows, NUM_CODES)


@dataclass(frozen=True, slots=True)
class Held:
    """An interval on its way to a record.

    Args:
        interval: Not split.
        exchanges: The numbers of its exchanges.
        samples: Records that all ranks trained in it.
        sections: Of the trial's own, by name.
        counters: Of the trial's own.
    """

    interval: Interval
    exchanges: Numbers
    samples: int
    sections: dict[str, PartTimes]
    counters: dict[str, float]

    def record(self, arrivals: LastArrivals | None) -> StepTimes:
        """Return the record; None: it is not known when other ranks have arrived."""
        interval, batches = self.interval, self.interval.batches
        if arrivals is not None and len(self.exchanges):
            interval = interval.split(arrivals.last(self.exchanges))
        return StepTimes(
            at=time.time(),
            first=interval.steps + (1 if batches else 0),
            batches=batches,
            samples=self.samples,
            seconds=interval.seconds,
            parts=interval.parts() | self.sections,
            counters=self.counters,
        )
