"""What a training in this process tells: a line for each report, validation and checkpoint."""

from __future__ import annotations

import sys
from typing import Any

from det_jupyter.core import RecordList
from det_jupyter.records import CheckpointSaved, MetricsReported, Record


class PrintedRecords(RecordList):
    """A RecordSink that keeps records and prints those that people read."""

    def write(self, record: Record) -> None:
        """See RecordSink."""
        if line := describe(record):  # the others are many, and nobody asks for them
            super().write(record)
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()


def describe(record: Record) -> str | None:
    """Return the line for a record; None if nobody wants to read it.

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
