"""Separate random numbers for a block of code: the global generators are swapped and put back.

    batch_start(seed, step, row)    the states with which a batch begins
    drawing_from(start)             a `with` block that draws from these states
    pack_generators(slot)           the present states as bytes, for unpack_generators
    OwnGenerators(seed)             generators that continue from one block to the next

A batch's states are a function of (seed, step, first row), whichever process computes them and at
whichever step it begins. Seeding a Mersenne twister costs 12 us for Python's and NumPy's
generators, since each of its 624 numbers follows from the one before. Here the 624 numbers
themselves are drawn, for 32 steps at once, by a generator that is seeded for these steps: 1 us.
Torch's generator is seeded, which takes 1 us; `torch.initial_seed()` returns that seed.

Python's and NumPy's states are copied as bytes. The public functions convert 624 numbers to Python
objects and back: 16 us for `random` (40 with cold caches) and 70 us for `numpy.random`, for each
swap. In memory the states are:

    Python   the generator object, after its header (`RandomObject` in Modules/_randommodule.c):
             an int, the count of numbers used up, then 624 numbers of 32 bits
    NumPy    the Mersenne twister, at `ctypes.state_address`: 624 numbers of 32 bits, then the
             count of numbers used up; and the second of a pair of normal numbers, in the
             `RandomState` (aug_bitgen_t: a pointer, an int, the number)
    torch    for packing only: `mt19937_data_pod` in ATen's CPUGeneratorImpl (seed, counts, 624
             numbers), and the second of a pair of normal numbers, in float and in double

Importing this module verifies the layouts on generators of its own. Where a layout differs, or
the user has set another NumPy generator, the public functions are called instead.

A swap takes about 0.01 ms, and twice that during training, where the caches are cold. Each
function handles all generators: [m] separate calls would cost 4 us more between training steps.
CUDA's generators are not swapped.
"""

from __future__ import annotations

import ctypes
import random
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import numpy
import torch
from numpy.random import MT19937, RandomState, mtrand

_HEADER = object.__basicsize__
_NUMBERS = 624
_NUMBERS_SIZE = 4 * _NUMBERS
_STATE_SIZE = _NUMBERS_SIZE + 4  # the numbers, and the count of those used up
_ALL_USED = _NUMBERS.to_bytes(4, sys.byteorder)  # the next draw mixes all numbers first
_PAIR_OFFSET = 80  # in a RandomState: an int (1: there is a second number), and the number
_PAIR_SIZE = 16
_NO_PAIR = bytes(_PAIR_SIZE)
_GAUSS = struct.Struct("<Qd")  # whether Python's has a second normal number, and the number
_NO_GAUSS = _GAUSS.pack(0, 0.0)
# Where states are in packed bytes; torch's are last. Slices that are made once cost less.
_OF_PYTHON = slice(0, _STATE_SIZE)
_OF_NUMPY = slice(_OF_PYTHON.stop, _OF_PYTHON.stop + _STATE_SIZE)
_OF_PAIR = slice(_OF_NUMPY.stop, _OF_NUMPY.stop + _PAIR_SIZE)
_OF_GAUSS = slice(_OF_PAIR.stop, _OF_PAIR.stop + _GAUSS.size)
_TORCH_AT = _OF_GAUSS.stop
_TORCH_COUNTS_SIZE = 20  # a seed, two counts and a flag, before torch's 624 numbers
_TORCH_SIZE = _TORCH_COUNTS_SIZE + _NUMBERS_SIZE + 28  # optional<float>, optional<double>
_PACKED_SIZE = _TORCH_AT + _TORCH_SIZE
_OF_TORCH = slice(_TORCH_AT, _PACKED_SIZE)
_STEPS = 32
_MASK = 2**64 - 1

States = tuple[Any, ...]


class GeneratorStart(NamedTuple):
    """States with which a batch begins; those of Python and NumPy are in their memory format."""

    torch_seed: int
    python: bytes
    numpy: bytes


def batch_start(seed: int, step: int, begin: int) -> GeneratorStart:
    """Return the states with which a rank begins global batch `step`, at its row `begin`."""
    return _starts_of_steps(seed, step // _STEPS, begin)[step % _STEPS]


@lru_cache(maxsize=4)  # the last batch of a pass may begin at another row
def _starts_of_steps(seed: int, chunk: int, begin: int) -> list[GeneratorStart]:
    source = numpy.random.SFC64(batch_seed(seed, chunk, begin))
    seeds = (source.random_raw(_STEPS) >> 1).tolist()
    numbers = source.random_raw(_STEPS * _NUMBERS).tobytes()  # each makes two of 32 bits
    ends = range(_NUMBERS_SIZE, len(numbers) + 1, _NUMBERS_SIZE)
    states = [numbers[end - _NUMBERS_SIZE : end] for end in ends]
    return [
        GeneratorStart(torch_seed, _ALL_USED + python, numpys + _ALL_USED)
        for torch_seed, python, numpys in zip(seeds, states[::2], states[1::2], strict=True)
    ]


def batch_seed(seed: int, step: int, begin: int) -> int:
    """Return a seed that depends on all three. Rounds of splitmix64 (Steele, Lea, Flood 2014).

    >>> batch_seed(1, 2, 0) == batch_seed(1, 2, 0) != batch_seed(1, 2, 1)
    True
    """
    return _mixed(_mixed(_mixed(seed) + step) + begin) >> 1


def _mixed(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


@contextmanager
def drawing_from(start: GeneratorStart) -> Iterator[None]:
    """Set the global generators to these states within the block, and restore them after it."""
    outside = save_generators()
    start_generators(start)
    try:
        yield
    finally:
        restore_generators(outside)


class OwnGenerators:
    """Generator states, separate from the global ones, that continue from block to block."""

    def __init__(self, seed: int) -> None:
        with drawing_from(batch_start(seed, 0, 0)):
            self._states = save_generators()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Set the global generators to these states within the block, and restore them after it.

        The states that the block leaves are those of the next block.
        """
        outside = save_generators()
        restore_generators(self._states)
        try:
            yield
        finally:
            self._states = save_generators()
            restore_generators(outside)


def save_generators() -> States:
    """Return the states of the global generators, for `restore_generators`."""
    torch_state, twister = torch.default_generator.get_state(), mtrand.get_bit_generator()
    if twister is not _TWISTER:
        return torch_state, twister, random.getstate(), numpy.random.get_state(legacy=False)
    python, numpys = _PYTHON_NUMBERS.tobytes(), _NUMPY_NUMBERS.tobytes()
    return torch_state, twister, python, _PYTHON.gauss_next, numpys, _PAIR.tobytes()


def restore_generators(states: States) -> None:
    """Restore what `save_generators` returned."""
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


def can_pack_generators() -> bool:
    """Return whether the global generators are those that `pack_generators` copies."""
    return mtrand.get_bit_generator() is _TWISTER


def pack_generators(slot: memoryview) -> int:
    """Copy the states of the global generators into writable bytes, and return their number.

    [m] 0.4 µs.
    """
    slot[_OF_PYTHON], slot[_OF_NUMPY], slot[_OF_PAIR] = _PYTHON_NUMBERS, _NUMPY_NUMBERS, _PAIR
    gauss = _PYTHON.gauss_next
    slot[_OF_GAUSS] = _NO_GAUSS if gauss is None else _GAUSS.pack(1, gauss)
    if _TORCH_NUMBERS is not None:
        slot[_OF_TORCH] = _TORCH_NUMBERS
        return _PACKED_SIZE
    numbers = torch.default_generator.get_state().numpy().data
    length = _TORCH_AT + len(numbers)
    slot[_TORCH_AT:length] = numbers
    return length


def unpack_generators(packed: bytes) -> None:
    """Set the global generators to the states that were packed."""
    _PYTHON_NUMBERS[:], _NUMPY_NUMBERS[:] = packed[_OF_PYTHON], packed[_OF_NUMPY]
    _PAIR[:] = packed[_OF_PAIR]
    has_gauss, gauss = _GAUSS.unpack(packed[_OF_GAUSS])
    _PYTHON.gauss_next = gauss if has_gauss else None
    if _TORCH_NUMBERS is not None:
        _TORCH_NUMBERS[:] = packed[_TORCH_AT:]
    else:
        torch_state = torch.frombuffer(bytearray(packed[_TORCH_AT:]), dtype=torch.uint8)
        torch.default_generator.set_state(torch_state)


def start_generators(start: GeneratorStart) -> None:
    """Set the global generators to these states; the present ones are lost."""
    torch_seed, python, numpys = start
    torch.default_generator.manual_seed(torch_seed)
    if mtrand.get_bit_generator() is _TWISTER:
        _PYTHON_NUMBERS[:], _PYTHON.gauss_next = python, None
        _NUMPY_NUMBERS[:], _PAIR[:] = numpys, _NO_PAIR
        return
    key = numpy.frombuffer(python, numpy.uint32)[1:].tolist()
    random.setstate((random.Random.VERSION, (*key, _NUMBERS), None))
    twister = MT19937(0)
    key = numpy.frombuffer(numpys, numpy.uint32)[:-1]
    twister.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": _NUMBERS}}
    mtrand.set_bit_generator(twister)


def _python_numbers(generator: random.Random) -> memoryview:
    return _memory(id(generator) + _HEADER, _STATE_SIZE)


def _numpy_numbers(twister: Any) -> memoryview:
    return _memory(twister.ctypes.state_address, _STATE_SIZE)


def _pair_of(owner: RandomState) -> memoryview:
    return _memory(id(owner) + _PAIR_OFFSET, _PAIR_SIZE)


def _memory(address: int, size: int) -> memoryview:
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")


def _verified_twister() -> Any:
    """Return NumPy's global generator if both layouts are as described above, else None."""
    twister = mtrand.get_bit_generator()
    is_verified = type(twister) is MT19937 and _has_python_layout() and _has_numpy_layout()
    return twister if is_verified else None


def _has_python_layout() -> bool:
    inner = random.Random.__base__
    end = _HEADER + _STATE_SIZE
    if inner is None or not end <= inner.__basicsize__ <= end + 8:
        return False
    generator = random.Random(1)
    for draws in (0, 1, 700):
        for _ in range(draws):
            generator.random()
        *numbers, used = generator.getstate()[1]
        if numpy.frombuffer(_python_numbers(generator), numpy.uint32).tolist() != [used, *numbers]:
            return False
    return True


def _has_numpy_layout() -> bool:
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


def _torch_numbers(generator: Any) -> memoryview | None:
    """Return the memory of a torch generator's state; None if it is not found."""
    words = numpy.frombuffer(generator.get_state().numpy(), numpy.uint64)[3:11]  # after counts
    address = getattr(generator, "_cdata", 0)
    first = words.astype(numpy.uint32).tobytes()
    at = ctypes.string_at(address, 512).find(first) if address else -1
    if at < _TORCH_COUNTS_SIZE:
        return None
    return _memory(address + at - _TORCH_COUNTS_SIZE, _TORCH_SIZE)


def _has_torch_layout() -> bool:
    one, other = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
    source, copied = _torch_numbers(one), _torch_numbers(other)
    if source is None or copied is None:
        return False
    for normals in (0, 1, 1, 700, 1):
        torch.randn(normals, generator=one)
        copied[:] = source
        if not torch.equal(one.get_state(), other.get_state()):
            return False
    return True


_PYTHON: Any = random._inst  # the global generator
_PYTHON_NUMBERS = _python_numbers(_PYTHON)
_PAIR = _pair_of(mtrand._rand)
_TWISTER = _verified_twister()
_NUMPY_NUMBERS = _numpy_numbers(_TWISTER or MT19937(0))
_TORCH_NUMBERS = _torch_numbers(torch.default_generator) if _has_torch_layout() else None
