"""What the generators begin a batch with: random states, drawn for many batches at once.

A Mersenne twister is seeded by working out its 624 numbers of 32 bits one from another. For
Python's and numpy's generators that costs 12 us a batch, more than all the rest of an exchange.
Numbers that another generator has drawn serve as well, and cost 1 us: they are drawn for 32 steps
at once, by one that is seeded for these steps. So a batch's state is a function of (seed, step,
first row), whatever process works it out, and from which step on. Torch's generator is seeded:
that takes 1 us, and `torch.initial_seed()` tells it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy

_STEPS = 32
_NUMBERS = 624
_SIZE = 4 * _NUMBERS
_MASK = 2**64 - 1


class Beginning(NamedTuple):
    """States to begin a batch with. Of Python's and numpy's generators: their 624 numbers."""

    torch_seed: int
    python: bytes
    numpy: bytes


def beginning(seed: int, step: int, begin: int) -> Beginning:
    """Return what a rank begins a batch with.

    Args:
        seed: Of all that is drawn while loading.
        step: Position of the global batch in the whole training.
        begin: The first of the rank's rows in it.
    """
    return _drawn(seed, step // _STEPS, begin)[step % _STEPS]


def seed_at(seed: int, step: int, begin: int) -> int:
    """Return a seed that depends on all three. Rounds of splitmix64 (Steele, Lea, Flood 2014).

    >>> seed_at(1, 2, 0) == seed_at(1, 2, 0) != seed_at(1, 2, 1)
    True
    """
    return _mixed(_mixed(_mixed(seed) + step) + begin) >> 1


@lru_cache(maxsize=4)  # the last batch of a pass may begin at another row
def _drawn(seed: int, chunk: int, begin: int) -> list[Beginning]:
    source = numpy.random.SFC64(seed_at(seed, chunk, begin))
    seeds = (source.random_raw(_STEPS) >> 1).tolist()
    numbers = source.random_raw(_STEPS * _NUMBERS).tobytes()  # each makes two of 32 bits
    ends = range(_SIZE, len(numbers) + 1, _SIZE)
    states = [numbers[end - _SIZE : end] for end in ends]
    return list(map(Beginning, seeds, states[::2], states[1::2]))


def _mixed(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
