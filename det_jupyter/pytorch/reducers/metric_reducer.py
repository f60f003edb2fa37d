"""Custom metrics: a reducer class that users derive from, or a function of all values."""

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
    """A metric that is computed from the values of all batches on all ranks.

    Pass one to `context.wrap_reducer`, and call methods of your own from `train_batch` or
    `evaluate_batch` to add values. Both reductions are called with one rank, too.

    Values since the last report are lost at a pause, unless the class defines both `state_dict`
    and `load_state_dict`, which work like those of a module.
    """

    def reset(self) -> None:
        """Drop all values. Called when wrapped, before a validation, and after each reduction."""
        raise NotImplementedError

    def per_slot_reduce(self) -> Any:
        """Return the values of this rank: a picklable object, tensors on any device."""
        raise NotImplementedError

    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> Any:
        """Return the metric, from the results of `per_slot_reduce`. Called on the chief only.

        Args:
            per_slot_metrics: The results in the order of ranks, tensors on the CPU. Ranks that had
                no batch are left out.

        Returns:
            A dict of metrics, or one metric if the reducer was given a name: numbers, strings,
            lists, or anything else that JSON can hold.
        """
        raise NotImplementedError


class FunctionReducer(MetricReducer):
    """A function of the values of all ranks; `wrap_reducer` makes one of a function.

    Call `update` once per batch. Then the values are in the order of the data, whatever the number
    of ranks: for each batch rank after rank, since ranks have consecutive records of it. Without
    values the function is not called, and nothing is reported.
    """

    def __init__(self, function: Callable[[list[Any]], Any]) -> None:
        self.function = function
        self.values: list[Any] = []
        self._earlier: list[Any] = []  # on the chief: values of all ranks before a pause

    def update(self, value: Any) -> None:
        """Add a value, any picklable object. Tensors and arrays are copied, without gradients."""
        self.values.append(_copied(value))

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
        """Return the values, for a checkpoint."""
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
    """Restore the reducer's attributes after the block."""
    if isinstance(reducer, FunctionReducer):
        count = len(reducer.values)
        yield
        del reducer.values[count:]
        return
    attributes = vars(reducer)
    # Tensors are detached first: those with a graph cannot be deep-copied.
    before = copy.deepcopy(_copied(attributes))
    yield
    attributes.clear()
    attributes.update(before)


def on_cpu(value: Any) -> Any:
    """Return the value with its tensors on the CPU, in lists, tuples and dicts too."""
    return _mapped(value, lambda tensor: tensor.detach().cpu())


def _copied(value: Any) -> Any:
    """Return a copy, since outputs are often buffers that are reused."""
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
    """Return the first value of each rank, then the second of each rank that has one, ..."""
    rows = zip_longest(*values_by_rank, fillvalue=NOTHING)
    return [value for row in rows for value in row if value is not NOTHING]


def merged_values(states: Sequence[dict[str, Any]]) -> list[Any]:
    """Return the values in the states of a FunctionReducer on all ranks, in the data's order."""
    earlier = [value for state in states for value in state["earlier"]]
    return earlier + _interleaved([state["values"] for state in states])
