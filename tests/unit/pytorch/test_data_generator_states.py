"""The states of the global generators as bytes."""

from __future__ import annotations

import random

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from det_jupyter.pytorch.data import generator_states
from det_jupyter.pytorch.rng import seed_everything
from tests.unit.pytorch.data_support import states


def drawn() -> list[float]:
    """Draw what may come from a store, then what may not."""
    found = [random.gauss(0, 1), random.random(), numpy.random.normal(), numpy.random.rand()]
    return [*map(float, found), torch.randn(()).item()]


@settings(max_examples=30)
@given(st.integers(0, 2**31), st.integers(0, 1300), st.integers(0, 3), st.booleans())
def test_generators_go_on_where_their_states_were_taken(
    seed: int, draws: int, pairs: int, is_known: bool
) -> None:
    seed_everything(seed)
    for _ in range(draws):
        random.random()
        numpy.random.rand()
    for _ in range(pairs):
        random.gauss(0, 1)  # keeps the second of two for the next call
        numpy.random.normal()
    with pytest.MonkeyPatch.context() as patch:
        if not is_known:
            patch.setattr(generator_states, "_TWISTER", None)
        taken, before = generator_states.take(), states()
        expected = drawn()
        seed_everything(3)
        generator_states.put(taken)
        assert states() == before
        assert drawn() == expected
