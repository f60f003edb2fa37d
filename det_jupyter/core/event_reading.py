"""Reads metrics of a script that reports none from what it writes for TensorBoard or as CSV.

`SummaryWriter.add_scalar` of torch and of tensorboardX, Lightning's TensorBoardLogger and the
TensorBoard callback of transformers all end in `EventFileWriter.add_event`. That method is wrapped
when its module is first imported: the training only appends the event to a list, and a thread
makes records of it. No file is read, so the file's path and earlier content do not matter.

`CSVLogger.log_metrics` is wrapped too: Lightning logs to that where TensorBoard is not installed.
It is not read once there are events, since a script with both loggers gives them the same metrics.

The first report through the Core API ends the reading, and so does a callback of
`det_jupyter.integrations`: what is reported counts. An event waits for `_HELD_S`, so that a report
of the same step comes before it. contract/run/scalars.py has the names of the metrics.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial, wraps
from math import isfinite
from typing import Any, NamedTuple

from det_jupyter.contract.host.own_threads import start_own
from det_jupyter.contract.run.journal import MetricsReported, Notice, Progress
from det_jupyter.contract.run.scalars import ARGUMENTS, EPOCHS, Scalar, records_of, scalars_in
from det_jupyter.core.journal import RecordSink
from det_jupyter.core.metric_names import MetricNames
from det_jupyter.core.timings.after_import import after_import

NOTICE = (
    "The metrics are those that the script writes for TensorBoard or as CSV. A callback of "
    "det_jupyter.integrations, or calls of the Core API, give it checkpoints and pauses too: "
    "docs/integrations.md"
)
_HELD_S = 0.5
_WRITERS = ("tensorboard.summary.writer.event_file_writer", "tensorboardX.event_file_writer")
_CSV_LOGGERS = ("lightning.fabric.loggers.csv_logs", "lightning_fabric.loggers.csv_logs")


class Logged(NamedTuple):
    """A record of a CSVLogger; `at` is in UTC seconds."""

    values: Mapping[str, Any]
    step: int
    at: float


def scalars_of(event: Any) -> Iterator[Scalar]:
    """Yield the scalars of an event (a protocol buffer of TensorBoard, or a Logged)."""
    if isinstance(event, Logged):
        for name, number in event.values.items():
            with suppress(TypeError, ValueError):  # a text in a CSV file
                yield Scalar(name, event.step, float(number), event.at)
    else:
        yield from scalars_in(event)


def length_in(event: Any) -> tuple[float, float] | None:
    """Return the length in transformers' TrainingArguments: steps, or else epochs; None: none."""
    for value in () if isinstance(event, Logged) else event.summary.value:
        if value.tag == ARGUMENTS:
            with suppress(ValueError, TypeError, LookupError):
                arguments = json.loads(value.tensor.string_val[0])
                steps = max(0.0, arguments["max_steps"])
                return steps, 0.0 if steps else float(arguments["num_train_epochs"])
    return None


class EventReading:
    """Makes records of the events that this process writes.

    Args:
        sink: Stores the records.
        on_steps: Called with the steps completed.
        searcher_metric: Name of the searcher's metric.
        epochs: Length of the trial in epochs; 0: unknown, or in another unit.
    """

    def __init__(
        self,
        sink: RecordSink,
        on_steps: Callable[[int], None],
        searcher_metric: str,
        epochs: float = 0,
    ) -> None:
        self.forget()
        self.begin(sink, on_steps, searcher_metric, epochs)

    def forget(self) -> None:
        """Read nothing until `begin`: this process may be a fork, without the thread."""
        self._is_on, self.has_ended = False, True
        self._events: deque[Any] = deque()
        self._has_events = threading.Event()
        self._thread: threading.Thread | None = None
        self._writing = threading.Lock()

    def begin(
        self,
        sink: RecordSink,
        on_steps: Callable[[int], None],
        searcher_metric: str,
        epochs: float,
    ) -> None:
        """Read for another run of this process, after `end`; the arguments are the same."""
        self._sink, self._on_steps, self._metric = sink, on_steps, searcher_metric
        self._length = (0.0, float(epochs))  # length in steps, and in epochs; 0: unknown
        self._steps = 0
        self._has_read = False
        self._has_written_events = False
        self._validated = MetricNames(searcher_metric)
        self._is_on = True
        self.has_ended = False

    def take(self, event: Any) -> None:
        """Take an event of TensorBoard, or a Logged. May be called in any thread."""
        if not self._is_on:
            return
        self._events.append(event)
        if not self._has_events.is_set():
            self._has_events.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._read, name="det-events")
                with suppress(RuntimeError):  # the interpreter exits: `end` writes the records
                    start_own(self._thread)

    def stop(self) -> None:
        """Read nothing more, and forget what has not become a record."""
        self._is_on = False
        self._events.clear()

    def flush(self) -> None:
        """Write records of the events that came so far."""
        self._write(len(self._events))

    def end(self) -> None:
        """Write the remaining records, and read nothing until `begin`. Idempotent.

        Add a notice if the last validation lacks the metric.
        """
        self.has_ended = True
        try:
            self.flush()
            if self._is_on:
                self._give_notice(self._validated.end(has_validated=True))
        finally:
            self.stop()

    def _read(self) -> None:
        while True:
            self._has_events.wait()
            self._has_events.clear()
            num = len(self._events)
            time.sleep(_HELD_S)
            self._write(num)

    def _write(self, num: int) -> None:
        """Write records of the first `num` events; stop reading at one that cannot be read."""
        try:
            self._write_records(num)
        except Exception as error:  # the training goes on, and the list must not grow
            self.stop()
            text = f"what the script logs is not read any more: {error!r}"
            with suppress(OSError):  # the disk is full
                self._sink.write(Notice(at=time.time(), rank=0, text=text))

    def _write_records(self, num: int) -> None:
        with self._writing:
            events = [self._events.popleft() for _ in range(min(num, len(self._events)))]
            self._has_written_events |= not all(isinstance(each, Logged) for each in events)
            if self._has_written_events:
                events = [each for each in events if not isinstance(each, Logged)]
            scalars = [scalar for event in events for scalar in scalars_of(event)]
            for record in records_of(scalars, self._metric):
                self._note(record)
                self._sink.write(record)
            for event in events:
                self._length = length_in(event) or self._length
            self._write_progress(scalars)

    def _note(self, record: MetricsReported) -> None:
        steps = record.steps_completed
        if not self._has_read:
            self._has_read = True
            self._sink.write(Notice(at=time.time(), rank=0, text=NOTICE))
        # Only validations: metrics of training may be written with other step numbers.
        is_validation = record.group == "validation"
        if is_validation:
            self._give_notice(self._validated.note("validation", steps, record.metrics))
        if steps > self._steps:
            self._steps = steps
            self._on_steps(steps)

    def _give_notice(self, text: str) -> None:
        if text:
            self._sink.write(Notice(at=time.time(), rank=0, text=text))

    def _write_progress(self, scalars: list[Scalar]) -> None:
        num_steps, num_epochs = self._length
        epoch = max((each.value for each in scalars if each.tag in EPOCHS), default=0.0)
        fraction = self._steps / num_steps if num_steps else 0.0
        if num_epochs and isfinite(epoch):
            fraction = epoch / num_epochs
        if fraction > 0 and scalars:
            progress = Progress(
                at=time.time(), steps_completed=self._steps, fraction=min(1.0, fraction)
            )
            self._sink.write(progress)


_reading: EventReading | None = None


def read_events(
    sink: RecordSink, on_steps: Callable[[int], None], searcher_metric: str, epochs: float = 0
) -> None:
    """Read what this process writes for TensorBoard or as CSV from now on. See EventReading."""
    global _reading
    if _reading is not None:
        if _reading.has_ended:
            _reading.begin(sink, on_steps, searcher_metric, epochs)
        return
    _reading = EventReading(sink, on_steps, searcher_metric, epochs)
    os.register_at_fork(after_in_child=_reading.forget)
    atexit.register(_reading.end)
    for name in _WRITERS:
        after_import(name, partial(wrap_writer, name, _reading), has="EventFileWriter")
    for name in _CSV_LOGGERS:
        after_import(name, partial(wrap_csv_logger, name, _reading), has="CSVLogger")


def stop_reading() -> None:
    """Stop reading events, because this process reports its metrics itself."""
    if _reading is not None:
        _reading.stop()


def end_reading() -> None:
    """Write what was read. Called when the user's code has ended."""
    if _reading is not None:
        _reading.end()


def wrap_writer(name: str, reading: EventReading) -> None:
    """Let the writer of TensorBoard's events in this module also pass them to `reading`."""
    writer = sys.modules[name].EventFileWriter
    add = writer.add_event

    @wraps(add)
    def add_event(self: Any, event: Any) -> None:
        add(self, event)
        reading.take(event)

    writer.add_event = add_event


def wrap_csv_logger(name: str, reading: EventReading) -> None:
    """Let Lightning's CSVLogger in this module also pass what it logs to `reading`."""
    logger = sys.modules[name].CSVLogger
    log = logger.log_metrics

    @wraps(log)
    def log_metrics(self: Any, metrics: Mapping[str, Any], step: int | None = None) -> None:
        number = len(self.experiment.metrics) if step is None else step  # as it does
        log(self, metrics, step)
        reading.take(Logged(dict(metrics), number, time.time()))

    logger.log_metrics = log_metrics
