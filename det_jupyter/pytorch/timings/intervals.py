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

from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

from det_jupyter.contract.run.journal import PartTimes
from det_jupyter.contract.values.measures import PARTS
from det_jupyter.core.profiler import summary

Numbers = NDArray[numpy.int64]
Codes = NDArray[numpy.uint8]

CODES = {part: code for code, part in enumerate(PARTS)}
END = len(PARTS)  # the rest, between the end of a batch and the beginning of the next
UNKNOWN = -1  # when the last rank arrived
_NEXT, _REST = CODES["dataloader_next"], CODES["rest"]
_WAIT, _TRANSFER = CODES["exchange_wait"], CODES["exchange_transfer"]
_NS_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class Interval:
    """The marks of an interval."""

    times: Numbers  # in nanoseconds, ascending; the last one is the end of the interval
    codes: Codes  # what begins at each mark but the last
    steps: int  # `steps_completed` before the first batch that ends in it

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

        They meet when the last rank arrived; if that is UNKNOWN, the exchange is not told apart.
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
        """Return how long each part took that occurred."""
        durations, occurs = self.durations(), self._counted() > 0
        return {
            part: summary(durations[code][occurs[code]])
            for part, code in CODES.items()
            if occurs[code].any()
        }

    def rows(self) -> Numbers:
        """Return the row of each mark but the last; 0: before the first batch begins."""
        return numpy.cumsum(self.codes == _NEXT)

    def durations(self) -> Numbers:
        """Return nanoseconds by code and row."""
        # Floats are exact below 2**53.
        return self._counted(numpy.diff(self.times)).astype(numpy.int64)

    def _counted(self, weights: Numbers | None = None) -> NDArray[Any]:
        rows, codes = self.rows(), self.codes.astype(numpy.int64)
        codes[codes == END] = _REST
        num_rows = int(rows[-1]) + 1
        counted = numpy.bincount(codes * num_rows + rows, weights, END * num_rows)
        return counted.reshape(END, num_rows)
