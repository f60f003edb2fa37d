"""Other random numbers for a while."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Iterator

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import PCG64, BitGenerator, mtrand

from det_jupyter.pytorch.data.draws import Draws, drawing_from, seed_at
from det_jupyter.pytorch.rng import get_states, seed_everything, set_states
from tests.unit.data_support import states


@pytest.fixture(autouse=True)
def numpys_generator() -> Iterator[BitGenerator]:
    outside = mtrand.get_bit_generator()
    yield outside
    mtrand.set_bit_generator(outside)


def drawn() -> tuple[float, float, float]:
    return random.random(), float(numpy.random.normal()), float(torch.rand(()))


def test_a_seed_gives_the_numbers_that_seeding_gives() -> None:
    seed_everything(12)
    expected = [drawn() for _ in range(3)]
    before = states()
    with drawing_from(12):
        assert [drawn() for _ in range(3)] == expected
    assert states() == before


@pytest.mark.parametrize("normals", [0, 1, 2])
def test_the_generators_are_left_as_they_were_whatever_was_in_store(normals: int) -> None:
    seed_everything(4)
    numpy.random.normal(size=normals)
    before = states()
    with drawing_from(1):
        drawn()
        with drawing_from(2):
            inner = drawn()
        outer = drawn()
    assert states() == before
    with drawing_from(1):
        drawn()
        assert drawn() == outer
    with drawing_from(2):
        assert drawn() == inner


def test_draws_go_on_where_they_were() -> None:
    seed_everything(6)
    expected = [drawn() for _ in range(4)]
    draws = Draws(6)
    found = []
    for _ in range(4):  # the normal numbers come in pairs, across the blocks
        before = states()
        with draws.in_use():
            found.append(drawn())
        assert states() == before
        drawn()
    assert found == expected


def test_an_error_in_the_block_puts_the_generators_back() -> None:
    before = states()
    for block in (drawing_from(3), Draws(3).in_use()):
        with pytest.raises(ZeroDivisionError), block:
            _ = drawn()[0] / 0
    assert states() == before


def test_a_generator_of_another_kind_stays_the_users() -> None:
    own = PCG64(5)
    mtrand.set_bit_generator(own)
    expected = PCG64(5).random_raw(2).tolist()
    with drawing_from(3):
        drawn()
    assert mtrand.get_bit_generator() is own
    assert own.random_raw(2).tolist() == expected


def test_the_generator_that_replaces_numpys_is_like_it_to_everyone() -> None:
    with drawing_from(3):
        drawn()
    seed_everything(9)
    numpy.random.normal()
    saved = get_states()
    expected = drawn()
    set_states(saved)
    assert drawn() == expected
    set_states(saved)
    for copied in (copy.deepcopy(mtrand._rand), pickle.loads(pickle.dumps(mtrand._rand))):
        assert copied.normal() == expected[1]
    fresh = numpy.random.RandomState(1)
    fresh.set_state(numpy.random.get_state())
    assert fresh.normal() == expected[1]


@given(st.integers(0, 2**63), st.integers(0, 10**9), st.integers(0, 10**6))
def test_seeds_of_batches_differ(seed: int, step: int, begin: int) -> None:
    seeds = {
        seed_at(seed + i, step + j, begin + k) for i in (0, 1) for j in (0, 1) for k in (0, 1)
    }
    assert len(seeds) == 8
    assert all(0 <= found < 2**63 for found in seeds)
