"""Other random numbers for a while."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Iterator

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import MT19937, PCG64, BitGenerator, mtrand

from det_jupyter.pytorch.data import generators
from det_jupyter.pytorch.data.generators import (
    GeneratorStart,
    OwnGenerators,
    batch_seed,
    batch_start,
    drawing_from,
    start_generators,
)
from det_jupyter.pytorch.rng import get_states, seed_everything, set_states
from tests.unit.pytorch.data_support import states


@pytest.fixture(autouse=True)
def numpys_generator() -> Iterator[BitGenerator]:
    outside = mtrand.get_bit_generator()
    yield outside
    mtrand.set_bit_generator(outside)


def drawn() -> tuple[float, float, float]:
    return random.random(), float(numpy.random.normal()), float(torch.rand(()))


def at(step: int) -> GeneratorStart:
    return batch_start(1, step, 0)


def test_a_beginning_gives_the_same_numbers_wherever_it_is_drawn_from() -> None:
    with drawing_from(at(12)):
        expected = [drawn() for _ in range(3)]
    before = states()
    with drawing_from(at(12)):
        assert [drawn() for _ in range(3)] == expected
        assert torch.initial_seed() == at(12).torch_seed
    assert states() == before
    start_generators(at(12))  # as in a worker
    assert [drawn() for _ in range(3)] == expected
    start_generators(at(12))
    assert [drawn() for _ in range(3)] == expected


def test_beginnings_do_not_depend_on_what_was_asked_before_and_all_differ() -> None:
    places = [(step, row) for step in (0, 31, 32, 33, 1000) for row in (0, 5)]
    there = [batch_start(1, step, row) for step, row in places]
    back = [batch_start(1, step, row) for step, row in reversed(places)]
    assert there == back[::-1]
    parts = [part for found in there for part in found] + list(batch_start(2, 0, 0))
    assert len(set(parts)) == len(parts)


def test_numbers_of_a_beginning_are_as_good_as_seeded_ones() -> None:
    """Neither the first numbers of neighbouring batches nor those of one batch are related."""
    firsts = numpy.empty((200, 2, 50))
    for step in range(200):
        with drawing_from(at(step)):
            firsts[step] = [random.random() for _ in range(50)], numpy.random.rand(50)
    columns = firsts.reshape(200, 100)
    related = numpy.corrcoef(columns, rowvar=False) - numpy.eye(100)
    assert abs(related).max() < 0.4  # 4950 pairs of 200: 5.5 standard deviations
    neighbours = numpy.corrcoef(columns[:-1].ravel(), columns[1:].ravel())[0, 1]
    assert abs(neighbours) < 0.04
    assert abs(columns.mean() - 0.5) < 0.01


def test_where_the_layouts_are_not_known_the_numbers_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with drawing_from(at(7)):
        expected = [drawn() for _ in range(700)]
    monkeypatch.setattr(generators, "_TWISTER", None)
    numpy.random.normal()
    random.gauss(0, 1)
    before = states()
    with drawing_from(at(7)):
        assert [drawn() for _ in range(700)] == expected
        with drawing_from(at(8)):
            drawn()
    assert states() == before


def test_the_layouts_are_known_here() -> None:
    assert generators._TWISTER is not None


def test_a_block_may_put_another_generator_in_place() -> None:
    numpy.random.normal()
    before = states()
    with drawing_from(at(3)):
        mtrand.set_bit_generator(MT19937(4))
        drawn()
    assert states() == before


@pytest.mark.parametrize("normals", [0, 1, 2])
def test_the_generators_are_left_as_they_were_whatever_was_in_store(normals: int) -> None:
    seed_everything(4)
    numpy.random.normal(size=normals)
    before = states()
    with drawing_from(at(1)):
        drawn()
        with drawing_from(at(2)):
            inner = drawn()
        outer = drawn()
    assert states() == before
    with drawing_from(at(1)):
        drawn()
        assert drawn() == outer
    with drawing_from(at(2)):
        assert drawn() == inner


def test_draws_go_on_where_they_were() -> None:
    with drawing_from(batch_start(6, 0, 0)):
        expected = [drawn() for _ in range(4)]
    stream = OwnGenerators(6)
    found = []
    for _ in range(4):  # the normal numbers come in pairs, across the blocks
        before = states()
        with stream.in_use():
            found.append(drawn())
        assert states() == before
        drawn()
    assert found == expected


def test_an_error_in_the_block_puts_the_generators_back() -> None:
    before = states()
    for block in (drawing_from(at(3)), OwnGenerators(3).in_use()):
        with pytest.raises(ZeroDivisionError), block:
            _ = drawn()[0] / 0
    assert states() == before


def test_a_generator_of_another_kind_stays_the_users() -> None:
    own = PCG64(5)
    mtrand.set_bit_generator(own)
    expected = PCG64(5).random_raw(2).tolist()
    with drawing_from(at(3)):
        drawn()
    assert mtrand.get_bit_generator() is own
    assert own.random_raw(2).tolist() == expected


def test_what_is_saved_after_a_block_is_what_goes_on() -> None:
    with drawing_from(at(3)):
        drawn()
    seed_everything(9)
    numpy.random.normal()
    saved = get_states()
    expected = drawn()
    set_states(saved)
    assert drawn() == expected
    set_states(saved)
    assert copy.deepcopy(mtrand._rand).normal() == expected[1]
    assert pickle.loads(pickle.dumps(mtrand._rand)).normal() == expected[1]


@given(st.integers(0, 2**63), st.integers(0, 10**9), st.integers(0, 10**6))
def test_seeds_of_batches_differ(seed: int, step: int, begin: int) -> None:
    seeds = {
        batch_seed(seed + i, step + j, begin + k) for i in (0, 1) for j in (0, 1) for k in (0, 1)
    }
    assert len(seeds) == 8
    assert all(0 <= found < 2**63 for found in seeds)


def drawn_pairs_too() -> list[float]:
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
            patch.setattr(generators, "_TWISTER", None)
        taken, before = generators.save_generators(), states()
        expected = drawn_pairs_too()
        seed_everything(3)
        generators.restore_generators(taken)
        assert states() == before
        assert drawn_pairs_too() == expected


@given(st.integers(0, 2**31), st.integers(0, 1300), st.integers(0, 3))
def test_packed_states_are_those_of_the_generators(seed: int, draws: int, pairs: int) -> None:
    seed_everything(seed)
    for _ in range(draws):
        random.random()
        numpy.random.rand()
    for _ in range(pairs):
        random.gauss(0, 1)
        numpy.random.normal()
    slot = memoryview(bytearray(16384))
    packed = bytes(slot[: generators.pack_generators(slot)])
    expected = drawn_pairs_too()
    seed_everything(3)
    generators.unpack_generators(packed)
    assert drawn_pairs_too() == expected
