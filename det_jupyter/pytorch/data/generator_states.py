"""States of Python's and NumPy's global generators, copied as bytes.

The public functions convert 624 numbers to Python objects and back: 16 us for `random` (40 with
cold caches) and 70 us for `numpy.random`, for each exchange. The states are in memory:

    Python   the generator object, after its header (`RandomObject` in Modules/_randommodule.c):
             an int, the numbers used up, then 624 numbers of 32 bits
    NumPy    the Mersenne twister, at `ctypes.state_address`: 624 numbers of 32 bits, then the
             numbers used up; and the second of a pair of normal numbers, in the `RandomState`
             (aug_bitgen_t: a pointer, an int, the number)

Importing this module verifies both layouts on generators of its own. Where a layout differs, or
the user has set a NumPy generator of another kind, the public functions are called instead.
"""

from __future__ import annotations

import ctypes
import random
import sys
from typing import Any

import numpy
from numpy.random import MT19937, RandomState, mtrand

_HEADER = object.__basicsize__
_SIZE = 4 * 625
_ALL_USED = (624).to_bytes(4, sys.byteorder)  # so that the next ones are made of all of them
_VERSION = random.Random.VERSION
_PAIR_OFFSET = 80  # in a RandomState: an int that says whether there is a second number, and it
_PAIR_SIZE = 16
_NO_PAIR = bytes(_PAIR_SIZE)


class PythonState:
    """The state of a generator.

    Args:
        generator: Python's own class, or one that changes nothing of its state.
    """

    def __init__(self, generator: random.Random) -> None:
        self._generator = generator  # lives as long as its memory is looked at
        self._memory = _python_numbers(generator) if _KNOWS_PYTHON else None

    def take(self) -> tuple[Any, Any]:
        """Return all of the state, in whatever form `put` takes it."""
        if self._memory is None:
            return self._generator.getstate(), None
        return bytes(self._memory), self._generator.gauss_next  # type: ignore[attr-defined]  # not in the stubs

    def begin(self, numbers: bytes) -> None:
        """Begin with these 624 numbers of 32 bits."""
        if self._memory is None:
            key = numpy.frombuffer(numbers, numpy.uint32).tolist()
            self._generator.setstate((_VERSION, (*key, 624), None))
        else:
            self.put((_ALL_USED + numbers, None))

    def put(self, state: tuple[Any, Any]) -> None:
        """Put back what `take` returned."""
        if self._memory is None:
            self._generator.setstate(state[0])
        else:
            self._memory[:], self._generator.gauss_next = state  # type: ignore[attr-defined]  # not in the stubs


class NumpyState:
    """The state of what numpy's functions draw from."""

    def __init__(self) -> None:
        self._generator: Any = None  # whose numbers these are
        self._numbers: memoryview | None = None
        self._pair = _pair_of(mtrand._rand) if _KNOWS_NUMPY else memoryview(b"")

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
            is_known = _KNOWS_NUMPY and type(generator) is MT19937
            self._generator = generator
            self._numbers = _numpy_numbers(generator) if is_known else None
        return self._numbers


def _python_numbers(generator: random.Random) -> memoryview:
    return _memory(id(generator) + _HEADER, _SIZE)


def _numpy_numbers(twister: Any) -> memoryview:
    return _memory(twister.ctypes.state_address, _SIZE)


def _pair_of(owner: RandomState) -> memoryview:
    return _memory(id(owner) + _PAIR_OFFSET, _PAIR_SIZE)


def _memory(address: int, size: int) -> memoryview:
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")


def _knows_python() -> bool:
    """Return whether the state of Python's generators has the layout above."""
    inner = random.Random.__base__
    if inner is None or not _HEADER + _SIZE <= inner.__basicsize__ <= _HEADER + _SIZE + 8:
        return False
    generator = random.Random(1)
    for draws in (0, 1, 700):
        for _ in range(draws):
            generator.random()
        *numbers, used = generator.getstate()[1]
        if numpy.frombuffer(_python_numbers(generator), numpy.uint32).tolist() != [used, *numbers]:
            return False
    return True


def _knows_numpy() -> bool:
    """Return whether the state of NumPy's generators has the layout above."""
    owner = RandomState(MT19937(1))
    if type(mtrand._rand) is not RandomState:
        return False
    if RandomState.__basicsize__ < _PAIR_OFFSET + _PAIR_SIZE:
        return False
    for normals in (0, 1, 1, 700, 1):
        owner.normal(size=normals)
        state = owner.get_state(legacy=False)
        assert isinstance(state, dict)
        numbers = numpy.frombuffer(_numpy_numbers(owner._bit_generator), numpy.uint32).tolist()
        pair = _pair_of(owner)
        has_second = int.from_bytes(pair[:4], sys.byteorder)
        second = numpy.frombuffer(pair[8:], numpy.float64)[0]
        if numbers != [*state["state"]["key"].tolist(), state["state"]["pos"]]:
            return False
        if (has_second, second) != (state["has_gauss"], state["gauss"]):
            return False
    return True


_KNOWS_PYTHON = _knows_python()
_KNOWS_NUMPY = _knows_numpy()
