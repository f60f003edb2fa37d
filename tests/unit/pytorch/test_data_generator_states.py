"""The state of Python's global generator as bytes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from det_jupyter.pytorch.data import generator_states
from det_jupyter.pytorch.data.generator_states import PythonState


@settings(max_examples=30)
@given(st.integers(0, 2**70), st.integers(0, 1300), st.integers(0, 3))
def test_a_generator_goes_on_where_its_state_was_taken(seed: int, draws: int, pairs: int) -> None:
    generator = random.Random(seed)
    for _ in range(draws):
        generator.random()
    for _ in range(pairs):
        generator.gauss(0, 1)  # keeps the second of two for the next call
    state, expected_state = PythonState(generator).take(), generator.getstate()
    expected = [generator.gauss(0, 1), generator.random()]
    generator.seed(3)
    PythonState(generator).put(state)
    assert generator.getstate() == expected_state
    assert [generator.gauss(0, 1), generator.random()] == expected


def test_where_the_layout_is_not_known_the_methods_are_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(generator_states, "_KNOWS_PYTHON", False)
    generator = random.Random(5)
    generator.gauss(0, 1)
    state, expected = PythonState(generator).take(), generator.getstate()
    generator.seed(6)
    PythonState(generator).put(state)
    assert generator.getstate() == expected
