"""Seeds: one for the experiment, from which all that a search draws is drawn, in one order.

The generator is the Mersenne twister, seeded as `numpy.random.RandomState(seed)` is, so that a
seed gives the samples that it gave in Determined, on every computer. Python's `random.Random` is
the same machine with another way of seeding: `getrandbits(32)` is a word of it, and `random()`
numpy's `random_sample()`.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random

MAX_SEED = 2**31 - 1
_SIZE = 624
_WORDS_OF_A_NAME = 4  # Determined drew each trial's name, of 16 bytes, before its seed


def make_generator(seed: int) -> Random:
    """Return the generator of an experiment with this seed (0 to 2**32 - 1).

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

    Words are masked to the bits that are needed and drawn until one fits, which is also how numpy
    does it. A limit of 1 draws nothing.
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
    """Return a number from `low` up to `high`, all equally likely."""
    return low + (high - low) * generator.random()


def draw_trial_seed(generator: Random) -> int:
    """Return the seed of the trial that is being made, within 0..2**31-1."""
    for _ in range(_WORDS_OF_A_NAME):
        generator.getrandbits(32)
    return generator.getrandbits(32) & MAX_SEED


def trial_seed(experiment_seed: int, index: int) -> int:
    """Return a seed of its own for each index, within 0..2**31-1, without drawing the others."""
    return Random(f"det_jupyter trial {experiment_seed} {index}").randint(0, MAX_SEED)
