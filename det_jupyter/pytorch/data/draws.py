"""Other random numbers for a while: the global generators are exchanged, and come back untouched.

Copying the states of Python's, numpy's and torch's generators out and in costs 0.1 ms, 0.07 of it
for numpy, which reads its 624 numbers one by one. So numpy's generator is exchanged instead
(`set_bit_generator`). That forgets one thing: the second of a pair of normal numbers, which numpy
keeps outside of the generator. It is told only together with the 624 numbers; therefore the global
generator is replaced, once in a process, by an equal one that can keep these to itself. For
Python's see python_state.py.

Together 0.005 ms, and 0.007 for seeding, in a loop by itself; three times that in a training,
whose work between two batches empties the caches. CUDA's generators are left alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import torch
from numpy.random import MT19937, BitGenerator, mtrand

from det_jupyter.pytorch.data.python_state import PythonState
from det_jupyter.pytorch.rng import seed_cpu

_MASK = 2**64 - 1


def seed_at(seed: int, step: int, begin: int) -> int:
    """Return the seed of one batch. Rounds of splitmix64 (Steele, Lea, Flood 2014).

    >>> seed_at(1, 2, 0) == seed_at(1, 2, 0) != seed_at(1, 2, 1)
    True
    """
    return _mixed(_mixed(_mixed(seed) + step) + begin) >> 1


@contextmanager
def drawing_from(seed: int) -> Iterator[None]:
    """Let the block draw from generators seeded with `seed`; the global ones notice nothing."""
    states = _taken()
    try:
        inside = mtrand.get_bit_generator()
        mtrand.set_bit_generator(_Exchangeable(0) if inside is _INSIDE else _INSIDE)
        seed_cpu(seed)
        yield
    finally:
        _put(states)


class Draws:
    """Generators of their own, which go on where they were whenever a block draws from them."""

    def __init__(self, seed: int) -> None:
        states = _taken()
        mtrand.set_bit_generator(_Exchangeable(0))
        seed_cpu(seed)
        self._states = _taken()
        _put(states)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Let the block draw from these; the global ones notice nothing."""
        states = _taken()
        _put(self._states)
        try:
            yield
        finally:
            self._states = _taken()
            _put(states)


class _Exchangeable(MT19937):
    """A generator for numpy's global functions, whose numbers stay where they are if asked to."""

    _stays = False

    @property
    def state(self) -> Any:
        if self._stays:
            return {"bit_generator": "MT19937", "state": None}
        return MT19937.state.__get__(self)

    @state.setter
    def state(self, value: Any) -> None:
        if not self._stays:
            MT19937.state.__set__(self, value)  # type: ignore[attr-defined]  # a property to the stubs


_Exchangeable.__name__ = "MT19937"  # what its state is called, and has to be in any other process
_INSIDE = _Exchangeable(0)
_PYTHON = PythonState(random._inst)  # the global one


_States = tuple[Any, torch.Tensor, BitGenerator, dict[str, Any]]


def _taken() -> _States:
    generator = mtrand.get_bit_generator()
    if type(generator) is MT19937:
        generator = _adopt()
    return _PYTHON.take(), torch.default_generator.get_state(), generator, _normal(generator)


def _put(states: _States) -> None:
    python, torch_state, generator, normal = states
    _PYTHON.put(python)
    torch.default_generator.set_state(torch_state)
    mtrand.set_bit_generator(generator)
    if normal["has_gauss"]:
        _set_normal(generator, normal)


def _adopt() -> BitGenerator:
    """Replace numpy's global generator by an equal one that can be exchanged."""
    state = numpy.random.get_state(legacy=False)
    generator = _Exchangeable(0)
    mtrand.set_bit_generator(generator)
    numpy.random.set_state(state)
    return generator


def _normal(generator: BitGenerator) -> dict[str, Any]:
    """Return numpy's state; of an exchangeable generator only the normal number in store."""
    if isinstance(generator, _Exchangeable):
        generator._stays = True
    try:
        state = numpy.random.get_state(legacy=False)
        assert isinstance(state, dict)
        return state
    finally:
        if isinstance(generator, _Exchangeable):
            generator._stays = False


def _set_normal(generator: BitGenerator, normal: dict[str, Any]) -> None:
    if isinstance(generator, _Exchangeable):
        generator._stays = True
    try:
        numpy.random.set_state(normal)
    finally:
        if isinstance(generator, _Exchangeable):
            generator._stays = False


def _mixed(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
