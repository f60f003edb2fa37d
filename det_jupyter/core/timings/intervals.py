"""Computes durations from marks: of the parts of an interval, and of each batch. Pure.

    mark       the time at which a part begins, and which part; the part before ends there
    row        the marks from one `dataloader_next` to the next: a batch, with the event after it;
               in a loop that is not ours, from the end of a batch to the end of the next
    exchange   the marks at which this rank arrived at an exchange with the other ranks:

        this rank arrives        the last rank arrives        the exchange is over
               |    exchange_wait        |    exchange_transfer      |

Every nanosecond of an interval is in one part, so the parts sum to it. A part has one duration in
each row: if it occurs twice in a batch, these are summed.

Raw rows, which a user can request, have the parts of each batch under Determined's names:

    batch:       dataloader_next | to_device | train_batch                   | step_lr_schedulers
                                             |   .backward .sync_optimizers  |
    a report:    from_device | average_training_metrics | reduce_metrics

The parts of a report belong to the batch before it. Other work between batches (validation)
belongs to no batch. Durations stay integers, in nanoseconds, up to the journal: as text, a float
costs ten times as much.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy
from numpy.typing import NDArray

from det_jupyter.contract.run.journal import BatchTimings, PartTimes
from det_jupyter.contract.values.measures import PARTS, SECTION, WHOLE

Numbers = NDArray[numpy.int64]
Codes = NDArray[numpy.uint8]
Taken = tuple[str, int, int, int]  # a section: name, host time in ns, marks of begin and end

PERIOD_NS = 1_000_000_000  # between two records
CODES = {part: code for code, part in enumerate(PARTS)}
END = len(PARTS)  # ends a batch; until the next mark, the part is "rest"
UNKNOWN = -1  # in place of the time at which the last rank arrived
_NEXT, _REST = CODES["dataloader_next"], CODES["rest"]
_WAIT, _TRANSFER = CODES["exchange_wait"], CODES["exchange_transfer"]
_NS_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class Interval:
    """The marks of one rank between two flushes."""

    times: Numbers  # in nanoseconds, ascending; the last one is the end of the interval
    codes: Codes  # the part that begins at each mark but the last
    steps: int  # `steps_completed` before the first batch that ends in it
    begins: int = _NEXT  # the code that begins a row: `dataloader_next` or END

    @property
    def batches(self) -> int:
        """Number of batches that ended in the interval."""
        return int((self.codes == END).sum())

    @property
    def seconds(self) -> float:
        """Length of the interval."""
        return int(self.times[-1] - self.times[0]) / _NS_PER_S

    def split(self, last: Numbers) -> Interval:
        """Return the interval with each exchange split in two parts: waiting and transfer.

        They meet at `last`, when the last rank arrived; where that is UNKNOWN, it is not split.
        """
        at = numpy.flatnonzero(self.codes == CODES["exchange"])[: len(last)]
        at, last = at[last != UNKNOWN], last[last != UNKNOWN]
        codes = self.codes.copy()
        codes[at] = _WAIT
        middle = numpy.clip(last, self.times[at], self.times[at + 1])
        return replace(
            self,
            times=numpy.insert(self.times, at + 1, middle),
            codes=numpy.insert(codes, at + 1, _TRANSFER),
        )

    def parts(self) -> dict[str, PartTimes]:
        """Return a summary of the durations of each part that occurred."""
        durations, occurs = self.durations(), self._counted() > 0
        return {
            part: summary(durations[code][occurs[code]])
            for part, code in CODES.items()
            if occurs[code].any()
        }

    def rows(self) -> Numbers:
        """Return the index of the row that each mark belongs to, except for the last mark.

        If batches begin with `dataloader_next`, row 0 is before the first batch. If they begin
        where the previous one ends, the last row includes the marks after the last batch.
        """
        rows: Numbers = numpy.cumsum(self.codes == self.begins)
        if self.begins == _NEXT:
            return rows
        last = max(0, self.batches - 1)
        found: Numbers = numpy.minimum(rows - rows[0], last)
        return found

    def durations(self) -> Numbers:
        """Return nanoseconds, `[part, row]`."""
        # Floats are exact below 2**53.
        return self._counted(numpy.diff(self.times)).astype(numpy.int64)

    def _counted(self, weights: Numbers | None = None) -> NDArray[Any]:
        rows, codes = self.rows(), self.codes.astype(numpy.int64)
        codes[codes == END] = _REST
        num_rows = int(rows[-1]) + 1
        counted = numpy.bincount(codes * num_rows + rows, weights, END * num_rows)
        return counted.reshape(END, num_rows)


_PARTS_OF = {
    "dataloader_next": ["dataloader_next"],
    "to_device": ["to_device"],
    "train_batch.backward": ["backward", "exchange"],
    "train_batch.sync_optimizers": ["optimizer"],
    "step_lr_schedulers": ["step_lr_schedulers"],
}
_OF_REPORT = ("from_device", "average_training_metrics", "reduce_metrics")


def to_rows(interval: Interval, records: list[int], begin: int, end: int) -> BatchTimings | None:
    """Return the rows of the batches with index `begin` to `end`; None if the interval has none.

    Args:
        interval: As it was marked, not split.
        records: Records that all ranks together trained, by batch of the interval.
        begin, end: Indices from the trial's beginning, both included.
    """
    first = max(begin, interval.steps)
    wanted = slice(first - interval.steps, max(0, end + 1 - interval.steps))
    records = records[wanted]
    if not records:
        return None
    sums = _with_own_exchanges(interval).durations()[:, 1 : interval.batches + 1][:, wanted]
    columns: dict[str, list[int | None]] = {
        name: sums[[CODES[part] for part in parts]].sum(axis=0).tolist()
        for name, parts in _PARTS_OF.items()
    }
    starts, ends = (
        numpy.flatnonzero(interval.codes == code) for code in (CODES["dataloader_next"], END)
    )
    times = interval.times
    columns["train_batch"] = _training(interval)[: interval.batches][wanted].tolist()
    columns[WHOLE] = (times[ends] - times[starts[: len(ends)]])[wanted].tolist()
    for part in _OF_REPORT:
        took = sums[CODES[part]].tolist()
        if any(took):
            columns[part] = [duration or None for duration in took]
    return BatchTimings(at=time.time(), first=first + 1, records=records, durations_ns=columns)


def _with_own_exchanges(interval: Interval) -> Interval:
    """Return the interval with the exchanges of backward passes only; others become "rest"."""
    codes, exchange = interval.codes, CODES["exchange"]
    others = numpy.where(codes == exchange, 0, numpy.arange(len(codes)))
    before = codes[numpy.maximum.accumulate(others)]  # the part before a run of exchanges
    is_other = (codes == exchange) & (before != CODES["backward"])
    return replace(interval, codes=numpy.where(is_other, CODES["rest"], codes))


def _training(interval: Interval) -> Numbers:
    """Return how long each `train_batch` took, with everything that it calls."""
    codes, times = interval.codes, interval.times
    leaves = numpy.flatnonzero((codes == CODES["rest"]) | (codes == END))
    enters = numpy.flatnonzero(codes == CODES["forward"])
    _, firsts = numpy.unique(interval.rows()[enters], return_index=True)
    began = enters[firsts]
    return times[leaves[numpy.searchsorted(leaves, began)]] - times[began]


def by_section(taken: Sequence[tuple[str, int]]) -> dict[str, PartTimes]:
    """Return the times of sections, given by name and nanoseconds, as parts of a record."""
    durations: dict[str, list[int]] = {}
    for name, duration in taken:
        durations.setdefault(name, []).append(duration)
    return {f"{SECTION}{name}": summary(each) for name, each in durations.items()}


def summary(durations: Sequence[int] | NDArray[numpy.int64]) -> PartTimes:
    """Return number, sum, percentiles and maximum, in seconds, of durations in nanoseconds."""
    num = len(durations)
    places = [ceil(num * 0.5) - 1, ceil(num * 0.95) - 1, num - 1]
    ordered = numpy.sort(durations)
    p50, p95, longest = (int(ordered[place]) / _NS_PER_S for place in places)
    return PartTimes(num, int(ordered.sum()) / _NS_PER_S, p50, p95, longest)
