"""Other random numbers for a while: the global generators are exchanged, and come back untouched.

Copying the states of Python's, numpy's and torch's generators by their own functions costs 0.1 ms,
nearly all of it for Python's and numpy's, which make objects of 624 numbers each. Their states are
copied as bytes instead (python_state.py, numpy_state.py), and a batch's are not worked out by
seeding (beginnings.py). All together that is some 0.01 ms, and twice that in a training, whose
work between two batches empties the caches. CUDA's generators are left alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import torch

from det_jupyter.pytorch.data.beginnings import Beginning, beginning
from det_jupyter.pytorch.data.numpy_state import NumpyState
from det_jupyter.pytorch.data.python_state import PythonState

_PYTHON = PythonState(random._inst)  # the global one
_NUMPY = NumpyState()


class drawing_from:  # read as a function; as one it would cost twice as much
    """Let a `with` block draw from generators that begin so; the global ones notice nothing."""

    __slots__ = ("_beginning", "_states")

    def __init__(self, beginning: Beginning) -> None:
        self._beginning = beginning

    def __enter__(self) -> None:
        self._states = _taken()
        begin(self._beginning)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _put(self._states)


class Draws:
    """Generators of their own, which go on where they were whenever a block draws from them."""

    def __init__(self, seed: int) -> None:
        with drawing_from(beginning(seed, 0, 0)):
            self._states = _taken()

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


def begin(states: Beginning) -> None:
    """Let the global generators begin so, where nobody needs them as they were."""
    _PYTHON.begin(states.python)
    _NUMPY.begin(states.numpy)
    torch.default_generator.manual_seed(states.torch_seed)


_States = tuple[Any, Any, torch.Tensor]


def _taken() -> _States:
    return _PYTHON.take(), _NUMPY.take(), torch.default_generator.get_state()


def _put(states: _States) -> None:
    python, numpy_state, torch_state = states
    _PYTHON.put(python)
    _NUMPY.put(numpy_state)
    torch.default_generator.set_state(torch_state)
