"""The random generator of an experiment, and the seeds of its trials.

All that a search draws comes from one generator, in a fixed order. It is the Mersenne twister,
seeded like `numpy.random.RandomState(seed)`, so that a seed gives the same samples as in
Determined, on every computer. Python's `random.Random` is the same generator with another way of
seeding: its `getrandbits(32)` is the next word, its `random()` is numpy's `random_sample()`.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random

MAX_SEED = 2**31 - 1
_SIZE = 624
_WORDS_OF_A_NAME = 4  # Determined drew each trial's name, of 16 bytes, before its seed


def make_generator(seed: int) -> Random:
    """Return the generator for the seed of an experiment (0 to 2**32 - 1).

    >>> make_generator(0).random()
    0.5488135039273248
    """
    generator = Random()
    generator.setstate((3, _initial_state(seed), None))
    return generator


@lru_cache(maxsize=8)
def _initial_state(seed: int) -> tuple[int, ...]:
    words = [seed]
    for index in range(1, _SIZE):
        last = words[-1]
        words.append((1812433253 * (last ^ (last >> 30)) + index) & 0xFFFFFFFF)
    return (*words, _SIZE)


def draw_below(generator: Random, limit: int) -> int:
    """Return a whole number from 0 up to but not including `limit` (at most 2**64).

    As in numpy, words are masked to the bits of `limit - 1` and drawn until one is small enough. A
    limit of 1 draws no word.
    """
    highest = limit - 1
    if highest == 0:
        return 0
    mask = (1 << highest.bit_length()) - 1
    while True:
        word = generator.getrandbits(32)
        if highest > 0xFFFFFFFF:
            word = (word << 32) | generator.getrandbits(32)
        if (found := word & mask) <= highest:
            return found


def draw_between(generator: Random, low: float, high: float) -> float:
    """Return a uniformly distributed number from `low` to `high`."""
    return low + (high - low) * generator.random()


def draw_trial_seed(generator: Random) -> int:
    """Draw the seed of a new trial, within 0..2**31-1."""
    for _ in range(_WORDS_OF_A_NAME):
        generator.getrandbits(32)
    return generator.getrandbits(32) & MAX_SEED


def trial_seed(experiment_seed: int, index: int) -> int:
    """Return the seed of trial `index`, within 0..2**31-1, without drawing those before it."""
    return Random(f"det_jupyter trial {experiment_seed} {index}").randint(0, MAX_SEED)
