"""The state of numpy's global generator, taken and put back as bytes.

`numpy.random.get_state` and `set_state` read and write 624 numbers one by one: 70 us for both. The
state is in two places. The numbers are a Mersenne twister's, whose address numpy tells
(`ctypes.state_address`: 624 of 32 bits, and how many of them are used up). The second of a pair of
normal numbers is kept by the `RandomState` that draws from it (aug_bitgen_t: a pointer, an int,
the number). Whether that is so is tried when this is imported, on generators of our own. Where it
is not, or the user has put a generator of another kind in place, a twister of ours takes its place
for a while, and numpy's own functions tell its state.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy
from numpy.random import MT19937, RandomState, mtrand

_SIZE = 4 * 625
_ALL_USED = (624).to_bytes(4, sys.byteorder)  # so that the next ones are made of all of them
_PAIR_OFFSET = 80  # in a RandomState: an int that says whether there is a second number, and it
_PAIR_SIZE = 16
_NO_PAIR = bytes(_PAIR_SIZE)


class NumpyState:
    """The state of what numpy's functions draw from."""

    def __init__(self) -> None:
        self._generator: Any = None  # whose numbers these are
        self._numbers: memoryview | None = None
        self._pair = _pair_of(mtrand._rand) if _LAYOUT_IS_KNOWN else memoryview(b"")

    def take(self) -> tuple[Any, Any, bytes]:
        """Return all of the state, in whatever form `put` takes it."""
        numbers = self._look()
        if numbers is None:
            return self._generator, numpy.random.get_state(legacy=False), b""
        return self._generator, bytes(numbers), bytes(self._pair)

    def put(self, state: tuple[Any, Any, bytes]) -> None:
        """Put back what `take` returned."""
        generator, state_of_it, pair = state
        if mtrand.get_bit_generator() is not generator:
            mtrand.set_bit_generator(generator)
        numbers = self._look()
        if numbers is None:
            numpy.random.set_state(state_of_it)
        else:
            numbers[:], self._pair[:] = state_of_it, pair

    def begin(self, numbers: bytes) -> None:
        """Begin with these 624 numbers of 32 bits."""
        place = self._look()
        if place is None:
            twister = MT19937(0)
            key = numpy.frombuffer(numbers, numpy.uint32)
            twister.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": 624}}
            mtrand.set_bit_generator(twister)
        else:
            place[:], self._pair[:] = numbers + _ALL_USED, _NO_PAIR

    def _look(self) -> memoryview | None:
        """Return where the generator's numbers are; None if that is not known."""
        generator = mtrand.get_bit_generator()
        if generator is not self._generator:
            is_known = _LAYOUT_IS_KNOWN and type(generator) is MT19937
            self._generator = generator
            self._numbers = _numbers_of(generator) if is_known else None
        return self._numbers


def _numbers_of(twister: Any) -> memoryview:
    return _memory(twister.ctypes.state_address, _SIZE)


def _pair_of(owner: RandomState) -> memoryview:
    return _memory(id(owner) + _PAIR_OFFSET, _PAIR_SIZE)


def _memory(address: int, size: int) -> memoryview:
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")


def _layout_is_known() -> bool:
    """Return whether a generator's state is where we think it is."""
    owner = RandomState(MT19937(1))
    if type(mtrand._rand) is not RandomState:
        return False
    if RandomState.__basicsize__ < _PAIR_OFFSET + _PAIR_SIZE:
        return False
    for normals in (0, 1, 1, 700, 1):
        owner.normal(size=normals)
        state = owner.get_state(legacy=False)
        assert isinstance(state, dict)
        numbers = numpy.frombuffer(_numbers_of(owner._bit_generator), numpy.uint32).tolist()
        pair = _pair_of(owner)
        has_second = int.from_bytes(pair[:4], sys.byteorder)
        second = numpy.frombuffer(pair[8:], numpy.float64)[0]
        if numbers != [*state["state"]["key"].tolist(), state["state"]["pos"]]:
            return False
        if (has_second, second) != (state["has_gauss"], state["gauss"]):
            return False
    return True


_LAYOUT_IS_KNOWN = _layout_is_known()
