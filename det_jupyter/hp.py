"""Ranges of hyperparameters, as a configuration has them; for `sweep` and any config in Python.

    lr=hp.log(1e-5, 1e-1)      {type: log, base: 10, minval: -5, maxval: -1}
    dropout=hp.double(0, 0.5)  {type: double, minval: 0, maxval: 0.5}
    depth=hp.int(2, 8)         {type: int, minval: 2, maxval: 8}

Both ends are included. `count` is the number of values in a grid.
"""

from __future__ import annotations

import builtins
import math
from typing import Any

from det_jupyter.errors import UsageError

__all__ = ["double", "int", "log"]


def log(low: float, high: float, count: builtins.int | None = None) -> dict[str, Any]:
    """Return a range whose logarithm is drawn evenly.

    Raises:
        UsageError: The ends are not two numbers above 0, the smaller one first.

    >>> log(1e-5, 1e-1)
    {'type': 'log', 'base': 10, 'minval': -5.0, 'maxval': -1.0}
    """
    _check("log", low, high, above=0)
    if 1 < low < 10:  # exponents of 10 would look like ends given by mistake (config/notices.py)
        ends = {"base": low, "minval": 1.0, "maxval": math.log(high, low)}
    else:
        ends = {"base": 10, "minval": math.log10(low), "maxval": math.log10(high)}
    return {"type": "log", **ends, **_counted(count)}


def double(low: float, high: float, count: builtins.int | None = None) -> dict[str, Any]:
    """Return a range of numbers.

    Raises:
        UsageError: The ends are not two numbers, the smaller one first.
    """
    _check("double", low, high)
    return {"type": "double", "minval": low, "maxval": high, **_counted(count)}


def int(
    low: builtins.int, high: builtins.int, count: builtins.int | None = None
) -> dict[str, Any]:
    """Return a range of whole numbers.

    Raises:
        UsageError: The ends are not two numbers, the smaller one first.
    """
    _check("int", low, high)
    return {"type": "int", "minval": low, "maxval": high, **_counted(count)}


def _check(name: str, low: Any, high: Any, above: float = -math.inf) -> None:
    try:
        is_range = above < low < high < math.inf
    except TypeError:
        is_range = False
    if not is_range:
        numbers = "two numbers" if above < 0 else "two numbers above 0"
        raise UsageError(
            f"hp.{name}: got {low!r} and {high!r}, expected {numbers}, the smaller one first"
        )


def _counted(count: Any) -> dict[str, Any]:
    return {} if count is None else {"count": count}
