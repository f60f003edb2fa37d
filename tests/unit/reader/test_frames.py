"""What pages send: frames that make sense, and all others."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.errors import UsageError
from det_jupyter.reader.frames import Ack, ExperimentArgs, Follow, UsageArgs, args_of, parse


def test_frames_of_the_contract_are_read() -> None:
    said = {"op": "follow", "id": 7, "document": "experiment", "args": {"experiment_id": 3},
            "version": 12}  # fmt: skip
    frame = parse(json.dumps(said))
    assert isinstance(frame, Follow)
    assert frame.version == 12
    assert args_of(frame) == ExperimentArgs(experiment_id=3)
    assert parse('{"op": "ack", "id": 7, "version": 13}') == Ack(op="ack", id=7, version=13)


def test_a_period_may_be_whole() -> None:
    asked = Follow(op="follow", id=1, document="usage", args={"period_s": 2})
    assert args_of(asked) == UsageArgs(period_s=2)


@pytest.mark.parametrize(
    "message",
    ["", "{", "[]", "3", '{"op": "fly"}', '{"op": "ack", "id": "7", "version": 1}',
     '{"op": "ack", "id": -1, "version": 1}', '{"op": "ping", "more": 1}', b"\xff\xfe",
     b"\x00" * 99, '{"op": "follow", "id": 1, "document": 3}', "[" * 5000],
)  # fmt: skip
def test_what_is_no_frame_is_refused(message: str | bytes) -> None:
    with pytest.raises(UsageError, match="a frame cannot be read"):
        parse(message)


@pytest.mark.parametrize(
    ("document", "args", "said"),
    [
        ("weather", {}, "there is no document 'weather'; those are: experiments, cluster"),
        ("experiment", {}, "experiment_id"),
        ("experiment", {"experiment_id": "1; DROP"}, "experiment_id"),
        ("usage", {"period_s": 0}, "period_s"),
        ("usage", {"period_s": float("nan")}, "period_s"),
        ("comparison", {"experiment_ids": list(range(999))}, "experiment_ids"),
        ("cluster", {"x": 1}, "x"),
    ],
)
def test_other_documents_and_arguments_are_refused(
    document: str, args: dict[str, object], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        args_of(Follow(op="follow", id=1, document=document, args=args))


@given(st.one_of(st.text(), st.binary()))
def test_nothing_else_is_raised(message: str | bytes) -> None:
    with suppress(UsageError):
        parse(message)
