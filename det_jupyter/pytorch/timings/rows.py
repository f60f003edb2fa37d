"""From marks to raw rows: the parts of each batch, under Determined's names. Pure.

    batch:       dataloader_next | to_device | train_batch                   | step_lr_schedulers
                                             |   .backward .sync_optimizers  |
    a report:    from_device | average_training_metrics | reduce_metrics

What a report does belongs to the batch before it; what else is done between batches (validation)
to none. Durations stay integers, in nanoseconds, up to the journal: as text, a float costs ten
times as much.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy

from det_jupyter.contract.run.journal import BatchTimings
from det_jupyter.pytorch.timings.intervals import CODES, END, Interval, Numbers

_PARTS_OF = {
    "dataloader_next": ["dataloader_next"],
    "to_device": ["to_device"],
    "train_batch.backward": ["backward", "exchange"],
    "train_batch.sync_optimizers": ["optimizer"],
    "step_lr_schedulers": ["step_lr_schedulers"],
}
_OF_REPORT = ("from_device", "average_training_metrics", "reduce_metrics")


def to_rows(interval: Interval, records: list[int], begin: int, end: int) -> BatchTimings | None:
    """Return the batches from index `begin` to `end`, both included; None if there are none.

    The interval is not split; all ranks together trained `records` in each of its batches.
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
    columns["batch"] = (times[ends] - times[starts[: len(ends)]])[wanted].tolist()
    for part in _OF_REPORT:
        took = sums[CODES[part]].tolist()
        if any(took):
            columns[part] = [duration or None for duration in took]
    return BatchTimings(at=time.time(), first=first + 1, records=records, durations_ns=columns)


def _with_own_exchanges(interval: Interval) -> Interval:
    """Return the interval with exchanges of backward passes; any others are the rest."""
    codes, exchange = interval.codes, CODES["exchange"]
    others = numpy.where(codes == exchange, 0, numpy.arange(len(codes)))
    before = codes[numpy.maximum.accumulate(others)]  # what was under way before exchanges
    is_other = (codes == exchange) & (before != CODES["backward"])
    return replace(interval, codes=numpy.where(is_other, CODES["rest"], codes))


def _training(interval: Interval) -> Numbers:
    """Return the whole of each `train_batch`, with all that it calls."""
    codes, times = interval.codes, interval.times
    leaves = numpy.flatnonzero((codes == CODES["rest"]) | (codes == END))
    enters = numpy.flatnonzero(codes == CODES["forward"])
    _, firsts = numpy.unique(interval.rows()[enters], return_index=True)
    began = enters[firsts]
    return times[leaves[numpy.searchsorted(leaves, began)]] - times[began]
