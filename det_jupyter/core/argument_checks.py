"""Checks of the arguments of Core API calls, and their conversion to JSON types.

They are the same in experiments and outside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from det_jupyter.contract.values.bounds import MAX_COUNT, find_value_problem

_MAX_CHARACTERS = 60  # most characters of a value in an error message


def quoted(value: Any) -> str:
    """Format a value for an error message, shortened to 60 characters."""
    try:
        text = repr(value)
    except ValueError:  # a number of thousands of digits
        return f"an {type(value).__name__} of thousands of digits"
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 3] + "..."


def checked_steps(steps_completed: Any) -> int:
    """Check a number of batches and return it.

    Raises:
        ValueError: It is not an int from 0 to 2**53.
    """
    if isinstance(steps_completed, bool) or not isinstance(steps_completed, int):
        raise ValueError(
            f"steps_completed: got {quoted(steps_completed)}, expected a whole number"
        )
    if steps_completed < 0:
        raise ValueError(f"steps_completed: got {quoted(steps_completed)}, expected 0 or more")
    if steps_completed > MAX_COUNT:
        raise ValueError(f"steps_completed: got {quoted(steps_completed)}, expected at most 2**53")
    return steps_completed


def find_choice_problem(value: object, kind: type[Enum]) -> str:
    """Return the problem if a value is not a member of an enumeration; "" if it is."""
    if isinstance(value, kind):
        return ""
    choices = ", ".join(f"{kind.__name__}.{each.name}" for each in kind)
    return f"got {quoted(value)}, expected one of {choices}"


def is_number(value: Any) -> bool:
    """Return whether the value is an int or a float, and not a bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def checked_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Check metrics and return them as JSON types.

    Raises:
        ValueError: It is not a dict, or a name or value cannot be reported; the message names it.
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
        ValueError: One is not a number from 0 to 2**53.
    """
    for unit, amount in trained.items():
        if not is_number(amount) or not 0 <= amount <= MAX_COUNT:
            raise ValueError(
                f"trained[{unit!r}]: got {quoted(amount)}, expected a number from 0 to 2**53"
            )
    return dict(trained)


def to_json_value(where: str, value: Any) -> Any:
    """Return the value as JSON types: numbers, strings, booleans, None, lists and dicts.

    Tensors and arrays become lists, or numbers if they have no dimensions; keys become strings.
    NaN and infinities stay, since records may contain them. Waits for the device of a tensor.

    Args:
        where: Name of the value, for error messages.
        value: The value.

    Raises:
        ValueError: A value in it has another type or is too large; the message has its path.
    """
    try:
        plain = _to_json(where, value)
    except RecursionError:
        raise ValueError(f"{where}: got lists or dicts in one another without end") from None
    if problem := find_value_problem(plain, depth=2):  # stored within a dict and a list
        raise ValueError(f"{where}: got {problem}")
    return plain


def _to_json(where: str, value: Any) -> Any:
    if hasattr(value, "tolist"):  # tensors, numpy's arrays and scalars
        value = value.tolist()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(name): _to_json(f"{where}[{name!r}]", item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_json(f"{where}[{index}]", item) for index, item in enumerate(value)]
    raise ValueError(
        f"{where}: got {type(value).__name__}, expected a number, or what JSON can hold "
        "(strings, booleans, None, lists, dicts; arrays and tensors become lists)"
    )


def values_by_metric(batch_metrics: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the values of one or more batches as a list for each metric.

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
    """Base of a context's parts. A part is open until the context's `with` block ends.

    Each later `with` block of the context opens it again.
    """

    is_open = True

    def check_open(self, call: str) -> None:
        """Check that the context is open.

        Args:
            call: Name of the calling method, for the message.

        Raises:
            RuntimeError: The context is closed.
        """
        if not self.is_open:
            raise RuntimeError(
                f"{call}: this context is closed, as its `with core.init()` block has ended; "
                "move the call into the block"
            )
