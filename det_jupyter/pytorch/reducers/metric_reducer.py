"""Metrics of a trial's own: a reducer class, or a function of all values."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any, TypeGuard

import numpy
import torch

NOTHING = object()  # a function's result where there were no values


class MetricReducer:
    """A metric that is computed from everything that was seen, on every rank.

    Give one to `context.wrap_reducer`, and call methods of your own from `train_batch` or
    `evaluate_batch` to take values in. With one rank, too, both reductions are called.

    What was taken in since the last report is lost at a pause, unless `state_dict` and
    `load_state_dict` are defined: both, as those of a module.
    """

    def reset(self) -> None:
        """Forget everything: called when it is wrapped, and before what is reduced next."""
        raise NotImplementedError

    def per_slot_reduce(self) -> Any:
        """Return what this rank has seen, picklable, tensors on any device."""
        raise NotImplementedError

    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> Any:
        """Return the metric, from what `per_slot_reduce` returned on each rank. On the chief.

        Args:
            per_slot_metrics: In the order of ranks, tensors on the CPU. Ranks that had no batch
                are left out.

        Returns:
            A dict of metrics, or one metric if the reducer was given a name: numbers, strings,
            lists, or whatever JSON can hold.
        """
        raise NotImplementedError


class FunctionReducer(MetricReducer):
    """A function over all values that the ranks were given; what `wrap_reducer` makes of one.

    Call `update` once per batch, and the values come in the order of the data, whatever the number
    of ranks: rank after rank for each batch, which have consecutive records of it. If there are
    no values, the function is not called and nothing is reported.
    """

    def __init__(self, function: Callable[[list[Any]], Any]) -> None:
        self.function = function
        self.values: list[Any] = []
        self._earlier: list[Any] = []  # of all ranks, before a pause; with the chief

    def update(self, value: Any) -> None:
        """Take in a value: anything picklable. Tensors and arrays are copied, without gradients"""
        self.values.append(_kept(value))

    def reset(self) -> None:
        """See MetricReducer."""
        self.values = []
        self._earlier = []

    def per_slot_reduce(self) -> tuple[list[Any], list[Any]]:
        """See MetricReducer."""
        return self._earlier, self.values

    def cross_slot_reduce(self, per_slot_metrics: list[tuple[list[Any], list[Any]]]) -> Any:
        """See MetricReducer."""
        values = [value for earlier, _ in per_slot_metrics for value in earlier]
        values += _interleaved([later for _, later in per_slot_metrics])
        return self.function(values) if values else NOTHING

    def state_dict(self) -> dict[str, Any]:
        """Return the values taken in, for a checkpoint."""
        return {"earlier": self._earlier, "values": [on_cpu(value) for value in self.values]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._earlier = list(state_dict["earlier"])
        self.values = list(state_dict["values"])


def keeps_state(reducer: Any) -> TypeGuard[Any]:
    """Return whether the reducer defines both `state_dict` and `load_state_dict`."""
    return hasattr(reducer, "state_dict") and hasattr(reducer, "load_state_dict")


@contextmanager
def unchanged(reducer: MetricReducer) -> Iterator[None]:
    """Put the reducer back, after the body, to what it was before."""
    if isinstance(reducer, FunctionReducer):
        count = len(reducer.values)
        yield
        del reducer.values[count:]
        return
    attributes = vars(reducer)
    before = copy.deepcopy(_kept(attributes))  # without gradients, which cannot be deep-copied
    yield
    attributes.clear()
    attributes.update(before)


def on_cpu(value: Any) -> Any:
    """Return the value with its tensors on the CPU, in lists, tuples and dicts too."""
    return _mapped(value, lambda tensor: tensor.detach().cpu())


def _kept(value: Any) -> Any:
    """Return a copy that nothing changes any more: outputs are often buffers that are reused."""
    return _mapped(value, lambda tensor: tensor.detach().clone())


def _mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, numpy.ndarray):
        return value.copy()
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_mapped(item, change) for item in value))
    if type(value) in (list, tuple):
        return type(value)(_mapped(item, change) for item in value)
    if type(value) is dict:
        return {key: _mapped(item, change) for key, item in value.items()}
    return value


def _interleaved(values_by_rank: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the values, the first of each rank, then the second of each that has one, ..."""
    rows = zip_longest(*values_by_rank, fillvalue=NOTHING)
    return [value for row in rows for value in row if value is not NOTHING]


def merged(states: Sequence[dict[str, Any]]) -> list[Any]:
    earlier = [value for state in states for value in state["earlier"]]
    return earlier + _interleaved([state["values"] for state in states])
