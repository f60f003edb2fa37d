"""Frames as bytes: what is packed here is what pages unpack (labextension/test reads the same)."""

from __future__ import annotations

import base64
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.contract.documents.codec import MIN_LENGTH, pack, to_text, unpack
from det_jupyter.contract.messages import Series

VECTORS = json.loads((Path(__file__).parents[3] / "fixtures" / "frames.json").read_text("utf-8"))

numbers = st.one_of(
    st.none(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False)
)
leaves = st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=9))
trees = st.recursive(
    st.one_of(leaves, st.lists(numbers, max_size=30)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(trees, st.integers(0, 2**31))
def test_what_is_packed_comes_out_again(data: Any, number: int) -> None:
    frame = pack(data).frame(op="document", id=number, version=1)
    assert unpack(frame) == {"op": "document", "id": number, "version": 1, "data": data}


def test_columns_of_integers_stay_integers() -> None:
    data = {"steps": [*range(20), None], "values": [*range(20), 0.5]}
    assert repr(unpack(pack(data).frame())["data"]["steps"]) == repr(data["steps"])


@given(st.lists(numbers, min_size=MIN_LENGTH, max_size=99), st.text())
def test_columns_begin_at_a_multiple_of_eight(values: list[float | None], text: str) -> None:
    frame = pack({"text": text, "values": values}).frame(op="document")
    assert isinstance(frame, bytes)
    length = int.from_bytes(frame[:4], "little")
    assert (4 + length) % 8 == 0
    assert len(frame) == 4 + length + 8 * len(values)


def test_numbers_that_are_not_finite_are_null() -> None:
    inside = [1.0, math.nan, math.inf, -math.inf] * 3
    data = {"few": inside[:3], "many": inside, "one": math.inf}
    said = unpack(pack(data).frame())["data"]
    assert said == {"few": [1.0, None, None], "many": [1.0, None, None, None] * 3, "one": None}


def test_messages_are_packed_as_their_fields() -> None:
    series = Series(source="host", name="cpu", title="CPU", x=[1.0] * 20, mid=[math.nan] * 20)
    frame = pack({"series": [series]}).frame()
    assert isinstance(frame, bytes)  # long lists in it are columns
    (said,) = unpack(frame)["data"]["series"]
    assert said == series.model_dump() | {"mid": [None] * 20}


@pytest.mark.parametrize("long", [[True] * 20, ["1"] * 20, [2**60] * 20, [[1]] * 20])
def test_only_numbers_that_stay_exact_become_columns(long: list[Any]) -> None:
    frame = pack(long).frame()
    assert isinstance(frame, str)
    assert json.loads(frame)["data"] == long


def test_a_name_like_that_of_columns_is_taken_for_none() -> None:
    data = {"hparams": {"$f64": [0, 1]}, "values": [1.0] * 20}
    assert unpack(pack(data).frame(op="answer")) == {"op": "answer", "data": data}


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_frames_are_those_of_the_fixture(vector: dict[str, Any]) -> None:
    fields = {name: part for name, part in vector["frame"].items() if name != "data"}
    frame = pack(vector["frame"]["data"]).frame(**fields)
    sent = frame if isinstance(frame, str) else base64.b64encode(frame).decode()
    assert sent == vector.get("text", vector.get("base64"))
    assert unpack(frame) == vector["frame"]


def test_half_a_character_is_replaced() -> None:
    assert unpack(pack({"name": "a\ud800b"}).frame())["data"] == {"name": "a?b"}


def test_a_frame_without_data_is_text() -> None:
    assert to_text(op="pong") == '{"op":"pong"}'
