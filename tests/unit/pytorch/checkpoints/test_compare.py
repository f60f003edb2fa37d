"""Two states, bit by bit: what differs is named, counted and measured."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from det_jupyter.pytorch.checkpoints.compare import Difference, compare, contents, main
from det_jupyter.pytorch.checkpoints.training_state import FORMAT, STATE_FILE

NAN = math.nan


def test_a_tensor_that_differs_is_named_with_its_first_element() -> None:
    one = {"models": [{"fc.weight": torch.tensor([[1.0, 2.0], [3.0, 4.0]])}]}
    other = {"models": [{"fc.weight": torch.tensor([[1.0, 2.0], [3.5, 6.0]])}]}
    assert compare(one, other) == [
        Difference(
            name="models.0.fc.weight",
            problem="2 of 4 elements differ, at most by 2; the first is [1, 0]: 3.0 and 3.5",
            first=(1, 0),
            count=2,
            total=4,
            largest=2.0,
        )
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.tensor(NAN), torch.tensor(NAN)),
        (NAN, NAN),
        (torch.zeros(0, 3), torch.zeros(0, 3)),
        (torch.ones(2, 3).t(), torch.ones(3, 2)),
        (torch.eye(2).to_sparse(), torch.eye(2)),
        ((1, 2, 3), torch.tensor([1, 2, 3])),
        (numpy.float64(1.5).item(), 1.5),
        ([], []),
        ({}, {}),
        ("text", "text"),
        ([1, "a", None], [1, "a", None]),
        (torch.tensor([1 + 2j]).conj(), torch.tensor([1 - 2j])),
    ],
)
def test_what_has_the_same_bits_is_the_same(one: Any, other: Any) -> None:
    assert compare({"a": one}, {"a": other}) == []


@pytest.mark.parametrize(
    ("one", "other", "problem"),
    [
        (0.0, -0.0, "0.0 in the first, -0.0 in the second"),
        (1, True, "1 in the first, True in the second"),
        (1, 1.0, "1 in the first, 1.0 in the second"),
        ("x", None, "'x' in the first, None in the second"),
        (torch.ones(2), torch.ones(3), "float32[2] and float32[3]"),
        (torch.ones(2), torch.ones(2).double(), "float32[2] and float64[2]"),
        (torch.ones(2), 1.0, "float32[2] in the first, 1.0 in the second"),
        (
            torch.tensor(NAN),
            torch.tensor(1.0),
            "1 of 1 elements differ; the first is []: nan and 1.0",
        ),
        (
            torch.tensor([True, False]),
            torch.tensor([True, True]),
            "1 of 2 elements differ, at most by 1; the first is [1]: False and True",
        ),
        ([1, 2], [1, 3], "1 of 2 elements differ, at most by 1; the first is [1]: 2 and 3"),
    ],
)
def test_what_has_other_bits_differs(one: Any, other: Any, problem: str) -> None:
    assert [str(found) for found in compare({"a": one}, {"a": other})] == [f"a: {problem}"]


def test_what_only_one_has_is_named() -> None:
    assert [str(d) for d in compare({"a": {"b": 1}, "c": 2}, {"a": {"d": 1}, "c": 2})] == [
        "a.b: only in the first",
        "a.d: only in the second",
    ]


def test_the_state_of_a_generator_is_one_row() -> None:
    states = {"python": (3, tuple(range(625)), None)}
    assert list(contents({"rng_states": [states]})) == [
        "rng_states.0.python.0",
        "rng_states.0.python.1",
        "rng_states.0.python.2",
    ]


@settings(max_examples=50)
@given(
    st.lists(st.floats(width=32), min_size=1, max_size=20),
    st.integers(0, 31),
    st.data(),
)
def test_a_single_bit_is_found(values: list[float], bit: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(values) - 1))
    one = torch.tensor(values)
    other = one.clone()
    flipped = other.view(torch.int32)
    flipped[index] ^= (1 << bit) if bit < 31 else -(1 << 31)
    (found,) = compare({"a": one}, {"a": other})
    assert (found.first, found.count, found.total) == ((index,), 1, len(values))
    assert compare({"a": one}, {"a": one.clone()}) == []


def write(folder: Path, value: float) -> str:
    folder.mkdir()
    state = {"format": FORMAT, "models": [{"w": torch.tensor([value])}], "arrays": {}}
    torch.save(state, folder / STATE_FILE)
    return str(folder)


def test_as_a_program_it_tells_and_exits_with_what_it_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, same, other = (write(tmp_path / n, v) for n, v in (("a", 1.0), ("b", 1.0), ("c", 2.0)))
    assert main([one, same]) == 0
    assert capsys.readouterr().out == "identical: 1 tensors and 1 other values\n"
    assert main([one, other]) == 1
    assert capsys.readouterr().out == (
        "1 of 2 differ:\n"
        "models.0.w: 1 of 1 elements differ, at most by 1; the first is [0]: 1.0 and 2.0\n"
    )
    assert main([one, other, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["tensors"], found["values"]) == (1, 2)
    assert found["differences"][0]["name"] == "models.0.w"
    assert main([one, str(tmp_path / "none")]) == 2
    assert "holds no training state" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main([one])
    assert stopped.value.code == 2
