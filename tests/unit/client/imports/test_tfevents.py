"""Event files of TensorBoard, as its own writer writes them."""

from __future__ import annotations

import io
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[import-untyped]  # has no stubs
from tensorboard.plugins.hparams.plugin_data_pb2 import (  # type: ignore[import-untyped]
    HParamsPluginData,
    SessionStartInfo,
)
from tensorboard.summary.writer.record_writer import (  # type: ignore[import-untyped]
    RecordWriter,
    masked_crc32c,
)

from det_jupyter.client.imports.tfevents import read_event_file
from det_jupyter.contract.run.scalars import Scalar


def frame(record: bytes) -> bytes:
    content = io.BytesIO()
    RecordWriter(content).write(record)
    return content.getvalue()


def header(length: int) -> bytes:
    packed = struct.pack("<Q", length)
    return packed + struct.pack("<I", masked_crc32c(packed))


def record(step: int, tag: str, value: float, at: float = 1.5) -> bytes:
    """Return an event with a scalar."""
    event = Event(step=step, wall_time=at, summary=summary(tag=tag, simple_value=value))
    return bytes(event.SerializeToString())


def summary(**value: Any) -> dict[str, Any]:
    return {"value": [value]}


def hparams_event(**hparams: Any) -> dict[str, Any]:
    """Return an event as `add_hparams` writes it."""
    start = SessionStartInfo()
    for name, value in hparams.items():
        kind = {bool: "bool_value", str: "string_value"}.get(type(value), "number_value")
        setattr(start.hparams[name], kind, value)
    content = HParamsPluginData(session_start_info=start).SerializeToString()
    plugin = {"plugin_data": {"plugin_name": "hparams", "content": content}}
    return {"summary": summary(tag="_hparams_/session_start_info", metadata=plugin)}


def write(file: Path, *events: dict[str, Any]) -> None:
    file.write_bytes(b"".join(frame(Event(**each).SerializeToString()) for each in events))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "events.out.tfevents.1.here"


def test_scalars_have_tag_step_value_and_time(file: Path) -> None:
    file.write_bytes(frame(record(7, "loss", 0.25, at=1.5)) + frame(record(8, "acc", 0.5)))
    found = read_event_file(file)
    assert found.scalars == [Scalar("loss", 7, 0.25, 1.5), Scalar("acc", 8, 0.5, 1.5)]
    assert (found.num_events, found.problem, found.hparams) == (2, "", {})


def test_a_file_that_ends_within_an_event_is_read_up_to_it(file: Path) -> None:
    whole, part = frame(record(1, "loss", 0.5)), frame(record(2, "loss", 0.25))
    for size in range(1, len(part)):
        file.write_bytes(whole + part[:size])
        found = read_event_file(file)
        assert len(found.scalars) == 1
        assert found.problem == (
            f"the last event is not whole at byte {len(whole)} of {len(whole) + size}; "
            "1 events before it were read"
        )


def test_a_damaged_file_is_read_up_to_the_damage(file: Path) -> None:
    content = frame(record(1, "loss", 0.5)) + frame(record(2, "loss", 0.25))
    half = len(content) // 2
    for place in (half, half + 9, half + 20, len(content) - 1):
        damaged = bytearray(content)
        damaged[place] ^= 1
        file.write_bytes(damaged)
        found = read_event_file(file)
        assert [each.step for each in found.scalars] == [1]
        assert found.problem.startswith((f"damaged at byte {half}", "the last event is not whole"))


@pytest.mark.parametrize(
    "odd", [b"\xff" * 20, record(2, "loss", 0.25).replace(b"loss", b"lo\xff\xff")]
)
def test_an_event_that_cannot_be_parsed_is_passed_over(file: Path, odd: bytes) -> None:
    file.write_bytes(frame(record(1, "loss", 0.5)) + frame(odd) + frame(record(3, "loss", 0.125)))
    found = read_event_file(file)
    assert [each.step for each in found.scalars] == [1, 3]
    assert (found.num_events, found.problem) == (
        2, "1 event left out: no protocol buffer, or a tag that is not UTF-8",
    )  # fmt: skip


@pytest.mark.parametrize("length", [5 * 2**20, 60 * 2**30])
def test_an_event_that_is_too_long_is_passed_over_unread(file: Path, length: int) -> None:
    """It is a hole: its length alone is in the file, as memory for it is nowhere."""
    with file.open("wb") as opened:
        opened.write(frame(record(1, "loss", 0.5)) + header(length))
        opened.seek(length + 4, os.SEEK_CUR)
        opened.write(frame(record(2, "loss", 0.25)))
    found = read_event_file(file)
    assert [each.step for each in found.scalars] == [1, 2]
    assert (found.num_events, found.problem) == (
        2, "1 event of over 4 MiB left out, as no scalar is so long",
    )  # fmt: skip
    with file.open("ab") as opened:
        opened.write(b"\0" * 20)
    assert read_event_file(file).problem.startswith("damaged at byte ")


def test_scalars_of_the_newer_style_are_read(file: Path) -> None:
    plugin = {"plugin_data": {"plugin_name": "scalars"}}
    forms = (
        {"dtype": 1, "float_val": [0.25]},
        {"dtype": 2, "double_val": [0.25]},
        {"dtype": 1, "tensor_content": struct.pack("<f", 0.25)},
    )
    write(
        file,
        {"file_version": "brain.Event:2"},
        *(
            {"step": 300, "summary": summary(tag="loss", tensor=tensor, metadata=plugin)}
            for tensor in forms
        ),
    )
    assert read_event_file(file).scalars == [Scalar("loss", 300, 0.25, 0.0)] * 3


def test_what_is_no_scalar_is_left_out(file: Path) -> None:
    text = {"plugin_data": {"plugin_name": "text"}}
    write(
        file,
        {"summary": summary(tag="note", tensor={"string_val": [b"hello"]}, metadata=text)},
        {"summary": summary(tag="weights", histo={"min": 0.0, "max": 1.0})},
        {"graph_def": b"graph"},
    )
    found = read_event_file(file)
    assert (found.scalars, found.problem, found.num_events) == ([], "", 3)


def test_what_a_writer_takes_back_is_left_out(file: Path) -> None:
    values = [
        {"step": step, "summary": summary(tag="loss", simple_value=1.0)} for step in (1, 2, 3)
    ]
    again = {"step": 2, "summary": summary(tag="loss", simple_value=0.5)}
    write(file, *values, {"step": 2, "session_log": {"status": 1}}, again)
    found = read_event_file(file)
    assert [(each.step, each.value) for each in found.scalars] == [(1, 1.0), (2, 0.5)]
    assert found.restarts_at == 2


def test_hyperparameters_are_read_with_their_types(file: Path) -> None:
    write(file, hparams_event(lr=0.1, layers=3, bn=False, opt="sgd"))
    found = read_event_file(file).hparams
    assert found == {"lr": 0.1, "layers": 3, "bn": False, "opt": "sgd"}
    assert isinstance(found["bn"], bool)
    assert isinstance(found["layers"], int)


def test_training_arguments_of_transformers_are_hyperparameters(file: Path) -> None:
    text = b'{"learning_rate": 5e-05, "max_steps": -1, "output_dir": "out", "seed": 42}'
    write(file, {"summary": summary(tag="args/text_summary", tensor={"string_val": [text]})})
    assert read_event_file(file).hparams == {"learning_rate": 5e-05, "max_steps": -1, "seed": 42}


def test_training_arguments_that_cannot_be_parsed_are_left_out(file: Path) -> None:
    text = b"[" * 100_000
    write(file, {"summary": summary(tag="args/text_summary", tensor={"string_val": [text]})})
    found = read_event_file(file)
    assert (found.hparams, found.problem) == ({}, "")
