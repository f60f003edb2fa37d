"""The points of a grid.

Axes are the hyperparameters that are no objects, depth first, sorted by name at every level; the
last one varies fastest. A point is computed from its place, so a grid takes no memory.

    int           `count` values with both ends, halves rounded away from 0; at most all
    double, log   `count` values with both ends (a log's are even in its exponent); 1: the middle
    categorical   all values in their order
    const         one
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from det_jupyter.config.hyperparameters import leaves


class Grid:
    """All combinations of the values of the hyperparameters.

    >>> grid = Grid({"b": {"type": "categorical", "vals": ["x", "y"]}, "a": 1})
    >>> len(grid), grid.point(0), grid.point(1)
    (2, {'a': 1, 'b': 'x'}, {'a': 1, 'b': 'y'})
    """

    def __init__(self, hyperparameters: Mapping[str, Any]) -> None:
        self._axes = [
            (path, axis_values(spec)) for path, spec in leaves(hyperparameters, is_sorted=True)
        ]

    def __len__(self) -> int:
        return prod(len(values) for _, values in self._axes)

    def point(self, place: int) -> dict[str, Any]:
        """Return the point at a place, from 0."""
        chosen = []
        for (*outer, name), values in reversed(self._axes):
            place, digit = divmod(place, len(values))
            chosen.append((outer, name, values[digit]))
        point: dict[str, Any] = {}
        for outer, name, value in reversed(chosen):
            inner = point
            for key in outer:
                inner = inner.setdefault(key, {})
            inner[name] = value
        return point


def axis_values(spec: Any) -> list[Any]:
    """Return the values of one hyperparameter.

    >>> axis_values({"type": "int", "minval": 0, "maxval": 20, "count": 7})
    [0, 3, 7, 10, 13, 17, 20]
    """
    if not isinstance(spec, Mapping) or spec.get("type") is None:
        return [spec]
    match spec["type"]:
        case "const":
            return [spec["val"]]
        case "categorical":
            return list(spec["vals"])
        case "int":
            return _whole_steps(int(spec["minval"]), int(spec["maxval"]), int(spec["count"]))
        case "double":
            return _steps(spec["minval"], spec["maxval"], int(spec["count"]))
        case "log":
            exponents = _steps(spec["minval"], spec["maxval"], int(spec["count"]))
            return [float(spec["base"]) ** exponent for exponent in exponents]
        case other:
            raise AssertionError(f"hyperparameter type {other!r} passed validation")


def _whole_steps(low: int, high: int, count: int) -> list[int]:
    count = min(count, high - low + 1)
    if count == 1:
        return [_divide(low + high, 2)]
    return [_divide(low * (count - 1) + step * (high - low), count - 1) for step in range(count)]


def _divide(number: int, by: int) -> int:
    """Return the quotient, rounded half away from zero."""
    size = (2 * abs(number) + by) // (2 * by)
    return size if number >= 0 else -size


def _steps(low: float, high: float, count: int) -> list[float]:
    if count == 1:
        return [(low + high) / 2]
    inner = [low + step * (high - low) / (count - 1) for step in range(1, count - 1)]
    return [float(low), *inner, float(high)]
