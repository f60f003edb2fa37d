"""Metrics that are read from what a script writes for TensorBoard."""

from __future__ import annotations

import errno
import json
import time
from math import isnan
from typing import Any

import pytest

from det_jupyter.contract.run.journal import MetricsReported, Notice, Progress
from det_jupyter.core import event_reading
from det_jupyter.core.event_reading import EventReading, Logged
from det_jupyter.core.journal import RecordList
from tests.waiting import wait_until


class Script:
    """What a script of these tests writes, and what is read."""

    def __init__(self, epochs: float = 0) -> None:
        self.sink = RecordList()
        self.steps: list[int] = []
        self.reading = EventReading(self.sink, self.steps.append, "error", epochs)

    def write(self, step: int = 0, **tags: float) -> None:
        event_pb2 = pytest.importorskip("tensorboard.compat.proto.event_pb2")
        values = [{"tag": tag, "simple_value": value} for tag, value in tags.items()]
        summary = {"value": values}
        self.reading.take(event_pb2.Event(step=step, wall_time=time.time(), summary=summary))

    def write_arguments(self, **arguments: Any) -> None:
        event_pb2 = pytest.importorskip("tensorboard.compat.proto.event_pb2")
        text = {"dtype": 7, "string_val": [json.dumps(arguments).encode()]}
        summary = {"value": [{"tag": "args/text_summary", "tensor": text}]}
        self.reading.take(event_pb2.Event(summary=summary))

    def log(self, step: int, **values: Any) -> None:
        self.reading.take(Logged(values, step, time.time()))

    def of(self, kind: type[Any]) -> list[Any]:
        return [record for record in self.sink.records if isinstance(record, kind)]

    def metrics(self) -> list[dict[str, Any]]:
        return [record.metrics for record in self.of(MetricsReported)]


@pytest.fixture
def script() -> Script:
    return Script()


def test_events_become_records_with_one_notice(script: Script) -> None:
    script.write(1, loss=0.5)
    script.write(2, loss=0.25)
    script.reading.flush()
    script.write(3, loss=float("nan"))
    script.reading.flush()
    *first, last = script.metrics()
    assert first == [{"loss": 0.5}, {"loss": 0.25}]
    assert isnan(last["loss"])
    assert script.steps == [1, 2, 3]
    (notice,) = script.of(Notice)
    assert "TensorBoard" in notice.text
    assert "docs/integrations.md" in notice.text


def test_an_event_is_read_soon_without_another_call(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_reading, "_HELD_S", 0.01)
    script.write(1, loss=0.5)
    wait_until(script.metrics, "it is read")
    script.write(2, loss=0.25)
    wait_until(lambda: len(script.metrics()) == 2, "both are read")
    script.reading.stop()


def test_an_event_that_cannot_be_read_ends_the_reading_with_a_notice(
    script: Script,
) -> None:
    script.reading.take("no event")
    script.reading.flush()  # also when the user's code has ended
    (notice,) = script.of(Notice)
    assert "not read any more: AttributeError" in notice.text
    script.write(1, loss=0.5)
    script.reading.flush()
    assert script.metrics() == []


def test_a_report_ends_the_reading_and_drops_what_was_held(script: Script) -> None:
    script.write(1, loss=0.5)
    script.reading.stop()
    script.write(2, loss=0.25)
    script.reading.flush()
    assert script.sink.records == []


def test_what_a_csv_logger_logs_becomes_records(script: Script) -> None:
    script.log(4, val_loss=0.5, epoch=1, note="a text")
    script.reading.flush()
    (record,) = script.of(MetricsReported)
    assert (record.group, record.steps_completed) == ("validation", 4)
    assert record.metrics == {"val_loss": 0.5}
    assert len(script.of(Notice)) == 1


def test_a_script_with_both_loggers_has_its_metrics_once(script: Script) -> None:
    script.log(1, loss=0.5)
    script.write(1, loss=0.5)
    script.reading.flush()
    script.log(2, loss=0.25)
    script.reading.flush()
    script.write(2, loss=0.25)
    script.reading.flush()
    assert script.metrics() == [{"loss": 0.5}, {"loss": 0.25}]


def test_steps_do_not_go_back(script: Script) -> None:
    script.write(100, loss=0.5)
    script.write(1, val_loss=0.25)  # some scripts count epochs here
    script.reading.flush()
    assert script.steps == [100]


def test_a_searcher_metric_that_is_not_written_is_named_with_those_that_are() -> None:
    script = Script()
    script.write(1, val_loss=0.5, val_acc=0.5)
    script.reading.flush()
    assert len(script.of(Notice)) == 1
    script.write(2, val_loss=0.5, val_acc=0.5)
    script.write(3, val_loss=0.5, val_acc=0.5)
    script.reading.flush()
    _, notice = script.of(Notice)
    assert notice.text == (
        "searcher.metric is error, and validations have: val_acc, val_loss; so no checkpoint is "
        "the best one"
    )


def test_after_one_validation_the_name_that_is_meant_is_offered_at_the_end() -> None:
    script = Script()
    script.write(1, **{"Error/val": 0.5, "Loss/train": 0.25})
    script.reading.end()
    script.reading.end()
    _, notice = script.of(Notice)
    assert notice.text == (
        "searcher.metric is error, and validations have: Error; so no checkpoint is the best one. "
        "Did you mean Error?"
    )


def test_after_its_end_nothing_is_read_until_another_run_begins(script: Script) -> None:
    script.log(1, loss=0.5)
    script.reading.end()
    script.log(2, loss=0.25)
    script.reading.flush()
    assert script.metrics() == [{"loss": 0.5}]

    script.reading.forget()  # in a fork
    script.log(3, loss=0.25)
    script.reading.begin(script.sink, script.steps.append, "error", 0)
    script.log(4, loss=0.125)
    script.reading.end()
    assert script.metrics() == [{"loss": 0.5}, {"loss": 0.125}]


def test_a_full_disk_ends_the_reading(script: Script) -> None:
    def write(record: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    script.log(1, loss=0.5)
    script.sink.write = write  # type: ignore[method-assign]
    script.reading.end()
    assert script.metrics() == []


def test_a_searcher_metric_that_is_written_is_not_named(script: Script) -> None:
    for step in (1, 2, 3):
        script.write(step, val_loss=0.5)
        script.write(step, error=0.5)
    script.reading.flush()
    assert len(script.of(Notice)) == 1


def test_progress_is_that_of_epochs_if_the_length_is_in_epochs() -> None:
    script = Script(epochs=4)
    script.write(50, loss=0.5, epoch=1.0)
    script.reading.flush()
    (progress,) = script.of(Progress)
    assert (progress.fraction, progress.steps_completed) == (0.25, 50)


def test_transformers_arguments_have_the_length() -> None:
    script = Script()
    script.write_arguments(max_steps=-1, num_train_epochs=8.0)
    script.write(50, **{"train/loss": 0.5, "train/epoch": 2.0})
    script.reading.flush()
    (progress,) = script.of(Progress)
    assert progress.fraction == 0.25

    script = Script(epochs=4)
    script.write_arguments(max_steps=200, num_train_epochs=3.0)
    script.write(50, **{"train/loss": 0.5, "train/epoch": 2.0})
    script.reading.flush()
    (progress,) = script.of(Progress)
    assert progress.fraction == 0.25


@pytest.mark.parametrize("written", [[], [b"[]"], [b"{}"], [b"{"], [b'{"max_steps": "all"}']])
def test_arguments_that_cannot_be_read_are_no_length(script: Script, written: list[bytes]) -> None:
    event_pb2 = pytest.importorskip("tensorboard.compat.proto.event_pb2")
    value = {"tag": "args/text_summary", "tensor": {"dtype": 7, "string_val": written}}
    script.reading.take(event_pb2.Event(summary={"value": [value]}))
    script.write(50, loss=0.5)
    script.reading.flush()
    assert script.of(Progress) == []
    assert script.metrics() == [{"loss": 0.5}]


@pytest.mark.parametrize(
    ("tensor", "metrics"),
    [
        ({"float_val": [0.5]}, [{"loss": 0.5}]),
        ({"double_val": [0.25]}, [{"loss": 0.25}]),
        ({"float_val": [0.5, 0.5]}, []),
        ({}, []),
    ],
)
def test_scalars_that_are_written_as_tensors_are_read(
    script: Script, tensor: dict[str, Any], metrics: list[Any]
) -> None:
    event_pb2 = pytest.importorskip("tensorboard.compat.proto.event_pb2")
    values = [
        {"tag": "loss", "tensor": tensor, "metadata": {"plugin_data": {"plugin_name": name}}}
        for name in ("scalars", "images")
    ]
    script.reading.take(event_pb2.Event(step=1, summary={"value": values}))
    script.reading.flush()
    assert script.metrics() == metrics


def test_without_a_length_there_is_no_progress(script: Script) -> None:
    script.write(50, loss=0.5, epoch=2.0)
    script.reading.flush()
    assert script.of(Progress) == []
