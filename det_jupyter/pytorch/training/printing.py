"""The output of a training in this process: a line per report, validation and checkpoint."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from statistics import median
from typing import Any

from det_jupyter.core import RecordList
from det_jupyter.records import BatchTimings, CheckpointSaved, MetricsReported, Record, StepTimes


class PrintedRecords(RecordList):
    """A RecordSink that keeps records and prints those with a line."""

    def write(self, record: Record) -> None:
        """See RecordSink."""
        line = describe(record)
        if line or isinstance(record, BatchTimings | StepTimes):  # the others have no reader
            super().write(record)
        if line:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()

    def print_timings(self) -> None:
        """Print how long the parts of a batch took, if that was recorded."""
        timings = [record for record in self.records if isinstance(record, BatchTimings)]
        for line in summarize(timings):
            sys.stdout.write(f"{line}\n")


def summarize(timings: Sequence[BatchTimings]) -> list[str]:
    """Return a line for each part of a batch, with its median.

    >>> ns = {"batch": [2_000_000, 4_000_000, 3_000_000]}
    >>> summarize([BatchTimings(at=0, first=1, records=[8, 8, 8], durations_ns=ns)])
    ['batch                             3.000 ms']
    """
    durations: dict[str, list[int]] = {}
    for record in timings:
        for part, values in record.durations_ns.items():
            durations.setdefault(part, []).extend(value for value in values if value is not None)
    return [
        f"{part:<30} {median(values) / 1e6:8.3f} ms"
        for part, values in durations.items()
        if values
    ]


def describe(record: Record) -> str | None:
    """Return the line for a record; None if it is not printed.

    >>> describe(MetricsReported(at=0, group="training", steps_completed=20, metrics={"loss": 2}))
    'batch 20  training    loss 2'
    """
    if isinstance(record, MetricsReported):
        shown = "  ".join(f"{name} {_short(value)}" for name, value in record.metrics.items())
        return f"batch {record.steps_completed}  {record.group:<10}  {shown}"
    if isinstance(record, CheckpointSaved):
        return f"batch {record.steps_completed}  checkpoint  {record.uuid}"
    return None


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
