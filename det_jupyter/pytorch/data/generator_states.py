"""The states of the global generators: Python's and NumPy's are copied as bytes.

The public functions convert 624 numbers to Python objects and back: 16 us for `random` (40 with
cold caches) and 70 us for `numpy.random`, for each exchange. The states are in memory:

    Python   the generator object, after its header (`RandomObject` in Modules/_randommodule.c):
             an int, the numbers used up, then 624 numbers of 32 bits
    NumPy    the Mersenne twister, at `ctypes.state_address`: 624 numbers of 32 bits, then the
             numbers used up; and the second of a pair of normal numbers, in the `RandomState`
             (aug_bitgen_t: a pointer, an int, the number)

Importing this module verifies both layouts on generators of its own. Where a layout differs, or
the user has set another NumPy generator, the public functions are called instead.

Each function does its part for all generators: [m] between training steps, where the caches are
cold, calls for each of them cost 4 us more.
"""

from __future__ import annotations

import ctypes
import random
import sys
from typing import Any, NamedTuple

import numpy
import torch
from numpy.random import MT19937, RandomState, mtrand

_HEADER = object.__basicsize__
_SIZE = 4 * 625
_ALL_USED = (624).to_bytes(4, sys.byteorder)  # so that the next ones are made of all of them
_PAIR_OFFSET = 80  # in a RandomState: an int that says whether there is a second number, and it
_PAIR_SIZE = 16
_NO_PAIR = bytes(_PAIR_SIZE)

States = tuple[Any, ...]


class Beginning(NamedTuple):
    """States to begin a batch with; Python's and NumPy's as they are in memory."""

    torch_seed: int
    python: bytes
    numpy: bytes

    @classmethod
    def of(cls, torch_seed: int, python: bytes, numpy: bytes) -> Beginning:
        """Return the states with these 624 numbers of each generator, none of them drawn from."""
        return cls(torch_seed, _ALL_USED + python, numpy + _ALL_USED)


def take() -> States:
    """Return the states of all generators, in whatever form `put` takes them."""
    torch_state, twister = torch.default_generator.get_state(), mtrand.get_bit_generator()
    if twister is not _TWISTER:
        return torch_state, twister, random.getstate(), numpy.random.get_state(legacy=False)
    python, numpys = _PYTHON_NUMBERS.tobytes(), _NUMPY_NUMBERS.tobytes()
    return torch_state, twister, python, _PYTHON.gauss_next, numpys, _PAIR.tobytes()


def begin(states: Beginning) -> None:
    """Set the generators, without a way back."""
    torch_seed, python, numpys = states
    torch.default_generator.manual_seed(torch_seed)
    if mtrand.get_bit_generator() is _TWISTER:
        _PYTHON_NUMBERS[:], _PYTHON.gauss_next = python, None
        _NUMPY_NUMBERS[:], _PAIR[:] = numpys, _NO_PAIR
        return
    key = numpy.frombuffer(python, numpy.uint32)[1:].tolist()
    random.setstate((random.Random.VERSION, (*key, 624), None))
    twister = MT19937(0)
    key = numpy.frombuffer(numpys, numpy.uint32)[:-1]
    twister.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": 624}}
    mtrand.set_bit_generator(twister)


def put(states: States) -> None:
    """Put back what `take` returned."""
    torch_state, twister, *others = states
    torch.default_generator.set_state(torch_state)
    if mtrand.get_bit_generator() is not twister:
        mtrand.set_bit_generator(twister)
    if twister is _TWISTER:
        _PYTHON_NUMBERS[:], _PYTHON.gauss_next, _NUMPY_NUMBERS[:], _PAIR[:] = others
    else:
        python, numpys = others
        random.setstate(python)
        numpy.random.set_state(numpys)


def _python_numbers(generator: random.Random) -> memoryview:
    return _memory(id(generator) + _HEADER, _SIZE)


def _numpy_numbers(twister: Any) -> memoryview:
    return _memory(twister.ctypes.state_address, _SIZE)


def _pair_of(owner: RandomState) -> memoryview:
    return _memory(id(owner) + _PAIR_OFFSET, _PAIR_SIZE)


def _memory(address: int, size: int) -> memoryview:
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")


def _known_twister() -> Any:
    """Return numpy's global generator, if its states and Python's can be copied as bytes."""
    twister = mtrand.get_bit_generator()
    is_known = type(twister) is MT19937 and _knows_python() and _knows_numpy()
    return twister if is_known else None


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


_PYTHON: Any = random._inst  # the global generator
_PYTHON_NUMBERS = _python_numbers(_PYTHON)
_PAIR = _pair_of(mtrand._rand)
_TWISTER = _known_twister()  # None where the layouts are not known
_NUMPY_NUMBERS = _numpy_numbers(_TWISTER or MT19937(0))
