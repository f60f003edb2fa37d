"""Other random numbers for a block of code: the global generators are exchanged and put back.

    beginning(seed, step, row)    the states with which a batch begins
    drawing_from(beginning)       a `with` block that draws from them
    Draws(seed)                   generators that continue from one block to the next

To seed a Mersenne twister costs 12 us for Python's and NumPy's generators, since each of its 624
numbers follows from the one before. Here the 624 numbers themselves are drawn, for 32 steps at
once, by a generator that is seeded for these steps: 1 us. A batch's states are a function of
(seed, step, first row), whichever process computes them, and at whichever step it begins. Torch's
generator is seeded, which takes 1 us, and `torch.initial_seed()` returns that seed.

An exchange takes about 0.01 ms, and twice that during training, where the caches are cold. CUDA's
generators are not exchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import numpy

from det_jupyter.pytorch.data.generator_states import Beginning, begin, put, take

_STEPS = 32
_NUMBERS = 624
_SIZE = 4 * _NUMBERS
_MASK = 2**64 - 1


def beginning(seed: int, step: int, begin: int) -> Beginning:
    """Return the states with which a rank begins global batch `step`, at its row `begin`."""
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
    return list(map(Beginning.of, seeds, states[::2], states[1::2]))


def _mixed(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


@contextmanager
def drawing_from(beginning: Beginning) -> Iterator[None]:
    """Let the block draw from generators in these states; restore the global ones after it."""
    states = take()
    begin(beginning)
    try:
        yield
    finally:
        put(states)


class Draws:
    """Separate generators, which continue from one block to the next."""

    def __init__(self, seed: int) -> None:
        with drawing_from(beginning(seed, 0, 0)):
            self._states = take()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Let the block draw from these; restore the global generators after it."""
        states = take()
        put(self._states)
        try:
            yield
        finally:
            self._states = take()
            put(states)
