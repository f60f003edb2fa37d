"""Checks of what the Core API is given and when, alike in experiments and outside; JSON of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from det_jupyter.contract.values.bounds import MAX_COUNT, find_value_problem

_SHOWN = 60  # characters of a value that is refused


def shown(value: Any) -> str:
    """Return a value for a message that refuses it."""
    try:
        text = repr(value)
    except ValueError:  # a number of thousands of digits
        return f"an {type(value).__name__} of thousands of digits"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def checked_steps(steps_completed: Any) -> int:
    """Check a number of batches and return it.

    Raises:
        ValueError: It is no whole number from 0 to 2**53.
    """
    if isinstance(steps_completed, bool) or not isinstance(steps_completed, int):
        raise ValueError(f"steps_completed: got {shown(steps_completed)}, expected a whole number")
    if steps_completed < 0:
        raise ValueError(f"steps_completed: got {shown(steps_completed)}, expected 0 or more")
    if steps_completed > MAX_COUNT:
        raise ValueError(f"steps_completed: got {shown(steps_completed)}, expected at most 2**53")
    return steps_completed


def find_choice_problem(value: object, kind: type[Enum]) -> str:
    """Return why a value is none of an enumeration; "" if it is one."""
    if isinstance(value, kind):
        return ""
    choices = ", ".join(f"{kind.__name__}.{each.name}" for each in kind)
    return f"got {shown(value)}, expected one of {choices}"


def is_number(value: Any) -> bool:
    """Return whether the value is a number of Python's, and no truth value."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def checked_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Check metrics and return them as JSON types.

    Raises:
        ValueError: They are no dict of names and values; the message says which.
    """
    if not isinstance(metrics, Mapping):
        raise ValueError(f"metrics: got {type(metrics).__name__}, expected a dict of metrics")
    for name in metrics:
        if not isinstance(name, str) or not name:
            raise ValueError(f"metrics: got the name {name!r}, expected a string")
    return {
        name: value if type(value) is float else to_json_value(f"metric {name!r}", value)
        for name, value in metrics.items()
    }


def checked_amounts(trained: Mapping[str, float]) -> dict[str, float]:
    """Check amounts of training by unit, and return them.

    Raises:
        ValueError: One is no number from 0 to 2**53.
    """
    for unit, amount in trained.items():
        if not is_number(amount) or not 0 <= amount <= MAX_COUNT:
            raise ValueError(
                f"trained[{unit!r}]: got {shown(amount)}, expected a number from 0 to 2**53"
            )
    return dict(trained)


def to_json_value(where: str, value: Any) -> Any:
    """Return the value as JSON types: numbers, strings, booleans, None, lists and dicts.

    Tensors and arrays become lists, or numbers without dimensions; keys become strings. NaN and
    infinities stay, as records can hold them. Waits for the device of a tensor.

    Raises:
        ValueError: Something in it is of another type or too large; the message says where.
    """
    try:
        plain = _plain(where, value)
    except RecursionError:
        raise ValueError(f"{where}: got lists or dicts in one another without end") from None
    if problem := find_value_problem(plain, depth=2):  # it will be in a dict and in a list
        raise ValueError(f"{where}: got {problem}")
    return plain


def _plain(where: str, value: Any) -> Any:
    if hasattr(value, "tolist"):  # tensors, numpy's arrays and scalars
        value = value.tolist()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(f"{where}[{name!r}]", item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(f"{where}[{index}]", item) for index, item in enumerate(value)]
    raise ValueError(
        f"{where}: got {type(value).__name__}, expected a number, or what JSON can hold "
        "(strings, booleans, None, lists, dicts; arrays and tensors become lists)"
    )


def by_name(batch_metrics: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the values of batches, at least one, by the name of the metric.

    Raises:
        ValueError: The batches have different names, or a value cannot be reported.
    """
    names = batch_metrics[0].keys()
    for index, metrics in enumerate(batch_metrics):
        if metrics.keys() != names:
            raise ValueError(
                f"batch_metrics[{index}]: got {sorted(metrics)}, expected {sorted(names)}"
            )
    return {
        name: [to_json_value(f"batch metric {name!r}", metrics[name]) for metrics in batch_metrics]
        for name in names
    }


class ContextPart:
    """A part of a context: open from the beginning, and again in each further `with` block."""

    is_open = True

    def check_open(self, call: str) -> None:
        """Refuse a call after the end of the context.

        Raises:
            RuntimeError: The context is closed.
        """
        if not self.is_open:
            raise RuntimeError(
                f"{call}: this context is closed, as its `with core.init()` block has ended; "
                "move the call into the block"
            )
