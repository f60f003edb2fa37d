"""Seeds are the same in every version: checkpoints of earlier ones go on with the same data."""

from __future__ import annotations

import random

import numpy
import pytest
import torch

from det_jupyter.pytorch.data.generators import batch_seed
from det_jupyter.pytorch.rng import derive_seed, draw_seed, seed_everything


@pytest.mark.parametrize(
    ("parts", "seed"),
    [
        ((0, 0, 0), 1279368494785126216),
        ((1, 2, 0), 8306669473171521968),
        ((7, 100, 8), 6237183238091487622),
    ],
)
def test_the_seed_of_a_batch_is_of_three_numbers(parts: tuple[int, int, int], seed: int) -> None:
    assert batch_seed(*parts) == seed


@pytest.mark.parametrize(
    ("parts", "seed"),
    [(("a", 1, 2), 6712723657517131726), (("plain", 0), 8651761900764770085)],
)
def test_a_derived_seed_is_of_the_words(parts: tuple[object, ...], seed: int) -> None:
    assert derive_seed(*parts) == seed


def test_seeds_that_are_drawn_fit_into_31_bits() -> None:
    seeds = {draw_seed() for _ in range(50)}
    assert len(seeds) > 45
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert max(seeds) >= 2**29


@pytest.mark.parametrize("seed", [3, 2**40])
def test_one_seed_is_for_all_generators(seed: int) -> None:
    def draw() -> tuple[float, float, float]:
        seed_everything(seed)
        return random.random(), float(numpy.random.rand()), float(torch.rand(1))

    first = draw()
    assert draw() == first
    assert len(set(first)) == 3
