"""The output of a training in this process: a line per report, validation and checkpoint."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Any

from det_jupyter.contract.run.journal import (
    BatchTimings,
    CheckpointSaved,
    MetricsReported,
    Record,
    StepTimes,
)
from det_jupyter.contract.values.measures import PARTS, SECTION, measure_of
from det_jupyter.contract.values.text import duration, percent
from det_jupyter.core import RecordList

_MIN_TRAINING_S = 1.0  # shorter trainings have no line about their time
_MIN_SHARE = 0.01  # smaller parts of the time are left out


class SilentRecords(RecordList):
    """A RecordSink that stores records, except the StepTimes, which come every second."""

    def write(self, record: Record) -> None:
        """See RecordSink."""
        if not isinstance(record, StepTimes):
            super().write(record)


class PrintedRecords(RecordList):
    """A RecordSink that prints records which have a line (`describe`), and stores these."""

    def __init__(self) -> None:
        super().__init__()
        self._times = TotalTimes()

    def write(self, record: Record) -> None:
        """See RecordSink."""
        line = describe(record)
        if isinstance(record, StepTimes):
            self._times.add(record)
        elif line or isinstance(record, BatchTimings):  # other records are not needed
            super().write(record)
        if line:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()

    def print_timings(self) -> None:
        """Print the shares of the time, and the medians of the parts of recorded batches."""
        timings = [record for record in self.records if isinstance(record, BatchTimings)]
        for line in self._times.lines() + summarize(timings):
            sys.stdout.write(f"{line}\n")
        self._times = TotalTimes()


class TotalTimes:
    """Sums of the times of a training's parts and sections, and of its counters."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._parts: defaultdict[str, float] = defaultdict(float)
        self._counters: defaultdict[str, float] = defaultdict(float)

    def add(self, record: StepTimes) -> None:
        """Add the times of one interval."""
        self._seconds += record.seconds
        for part, times in record.parts.items():
            self._parts[part] += times.total
        for name, amount in record.counters.items():
            self._counters[name] += amount

    def lines(self) -> list[str]:
        """Return lines: shares of parts, shares of the trial's sections, counters per second."""
        if self._seconds < _MIN_TRAINING_S:
            return []
        parts = {name: part for name, part in self._parts.items() if name in PARTS}
        found = [f"time  {duration(self._seconds)}: {self._shares(parts)}"]
        sections = {n: time for n, time in self._parts.items() if n.startswith(SECTION)}
        if sections:
            found.append(f"sections  {self._shares(sections)}")
        for name, amount in self._counters.items():
            found.append(f"{name}  {amount:,.6g}, {amount / self._seconds:,.6g} a second")
        return found

    def _shares(self, seconds: dict[str, float]) -> str:
        ordered = sorted(seconds.items(), key=lambda item: -item[1])
        shown = [
            f"{measure_of(name).title} {percent(time / self._seconds)}"
            for name, time in ordered
            if time >= _MIN_SHARE * self._seconds
        ]
        return ", ".join(shown)


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
