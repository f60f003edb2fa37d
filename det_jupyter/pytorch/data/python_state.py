"""The state of Python's global generator, taken and put back as bytes.

`random.getstate` makes 625 Python integers of it, and `setstate` reads them again: 16 us for both,
40 where the caches are needed for other things, at every batch. CPython keeps the numbers within
the generator's object, behind its header (`RandomObject` in Modules/_randommodule.c: an int, how
many of them are used up, and 624 of 32 bits). Whether that is so is tried when this is imported,
on a generator of our own; where it is not, the methods are called.
"""

from __future__ import annotations

import ctypes
import random
import sys
from typing import Any

import numpy

_HEADER = object.__basicsize__
_SIZE = 4 * 625
_ALL_USED = (624).to_bytes(4, sys.byteorder)  # so that the next ones are made of all of them
_VERSION = random.Random.VERSION


class PythonState:
    """The state of a generator.

    Args:
        generator: Python's own class, or one that changes nothing of its state.
    """

    def __init__(self, generator: random.Random) -> None:
        self._generator = generator  # lives as long as its memory is looked at
        self._memory = _memory(generator) if _LAYOUT_IS_KNOWN else None

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


def _memory(generator: random.Random) -> memoryview:
    numbers = (ctypes.c_char * _SIZE).from_address(id(generator) + _HEADER)
    return memoryview(numbers).cast("B")


def _layout_is_known() -> bool:
    """Return whether a generator's state is where we think it is."""
    inner = random.Random.__base__
    if inner is None or not _HEADER + _SIZE <= inner.__basicsize__ <= _HEADER + _SIZE + 8:
        return False
    generator = random.Random(1)
    for draws in (0, 1, 700):
        for _ in range(draws):
            generator.random()
        *numbers, used = generator.getstate()[1]
        if numpy.frombuffer(_memory(generator), numpy.uint32).tolist() != [used, *numbers]:
            return False
    return True


_LAYOUT_IS_KNOWN = _layout_is_known()
