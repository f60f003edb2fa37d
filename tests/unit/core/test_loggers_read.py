"""Writers and loggers of a script that are read do what they did before."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter.contract.run.journal import MetricsReported, Notice
from det_jupyter.core.event_reading import scalars_of, wrap_csv_logger, wrap_writer
from tests.unit.core.test_event_reading import Script


def test_what_they_write_is_written_and_read_too(monkeypatch: pytest.MonkeyPatch) -> None:
    script, added = Script(), list[Any]()

    class EventFileWriter:
        def add_event(self, event: Any) -> None:
            added.append(event)

    class CSVLogger:
        def __init__(self) -> None:
            self.experiment = SimpleNamespace(metrics=[{}, {}])

        def log_metrics(self, metrics: Any, step: int | None = None) -> None:
            added.append((metrics, step))

    both = SimpleNamespace(EventFileWriter=EventFileWriter, CSVLogger=CSVLogger)
    monkeypatch.setitem(sys.modules, "logging_of_a_script", cast(ModuleType, both))
    wrap_csv_logger("logging_of_a_script", script.reading)
    CSVLogger().log_metrics({"loss": 0.5}, step=7)
    CSVLogger().log_metrics({"loss": 0.25})
    script.reading.flush()
    assert added == [({"loss": 0.5}, 7), ({"loss": 0.25}, None)]
    assert [(each.steps_completed, each.metrics) for each in script.of(MetricsReported)] == [
        (7, {"loss": 0.5}),
        (2, {"loss": 0.25}),
    ]
    wrap_writer("logging_of_a_script", script.reading)
    EventFileWriter().add_event("no event")
    script.reading.flush()
    assert added[-1] == "no event"
    assert "not read any more" in script.of(Notice)[-1].text


def test_scalars_are_read_however_they_are_written() -> None:
    event_pb2 = pytest.importorskip("tensorboard.compat.proto.event_pb2")
    scalars = {"plugin_data": {"plugin_name": "scalars"}}
    images = {"plugin_data": {"plugin_name": "images"}}
    values = [
        {"tag": "a", "simple_value": 0.5},
        {"tag": "b", "tensor": {"float_val": [0.25]}, "metadata": scalars},
        {"tag": "c", "tensor": {"double_val": [0.75]}, "metadata": scalars},
        {"tag": "d", "tensor": {"float_val": [0.25, 0.5]}, "metadata": scalars},
        {"tag": "e", "tensor": {"float_val": [0.25]}, "metadata": images},
    ]
    event = event_pb2.Event(step=3, wall_time=9.0, summary={"value": values})
    assert [tuple(each) for each in scalars_of(event)] == [
        ("a", 3, 0.5, 9.0),
        ("b", 3, 0.25, 9.0),
        ("c", 3, 0.75, 9.0),
    ]
