"""`grid`: every point of a grid, each trained to its full length.

Axes are the hyperparameters that are not nested objects, depth first, sorted by name at every
level; the last one varies fastest. A point is computed from its index, so a grid takes no memory.

    int           `count` integers including both bounds, halves rounded away from 0; at most all
    double, log   `count` values including both bounds (log: even exponents); count 1: the middle
    categorical   all values in their order
    const         its value
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, ClassVar, Literal

from det_jupyter.contract.schema.fields import Count, as_whole
from det_jupyter.contract.schema.hyperparameters import leaves, ranges_in_lists
from det_jupyter.contract.schema.key_paths import join_all
from det_jupyter.errors import Problem
from det_jupyter.searcher.full_length import FullLength
from det_jupyter.searcher.planning import BracketForecast, plan_full_length
from det_jupyter.searcher.searcher_section import OfLength
from det_jupyter.searcher.trials import Trials

MAX_GRID = 100_000
_COUNTED = ("int", "double", "log")  # kinds of ranges that need a `count` in a grid


class GridSearcher(OfLength):
    """Every point of a grid, each trained to its full length."""

    is_exhaustive: ClassVar[bool] = True
    is_continuable: ClassVar[bool] = True
    name: Literal["grid"]
    max_concurrent_trials: Count = 16
    """How many trials are at work at a time, 1,000 at most; 0: all, or what the rungs need."""

    def make(self, trials: Trials) -> FullLength:
        """Return the search method."""
        grid = Grid(trials.hyperparameters)
        return FullLength(
            trials,
            self.max_length,
            max_trials=len(grid),
            max_concurrent_trials=self.max_concurrent_trials,
            # Determined takes a grid's points from the end of their list.
            hparams_of=lambda index: grid.point(len(grid) - 1 - index),
        )

    def plan(self, hyperparameters: Mapping[str, Any]) -> list[BracketForecast]:
        """Return the planned training."""
        number = len(Grid(hyperparameters))
        return [plan_full_length(number, self.max_concurrent_trials, self.max_length.amount)]

    def sample(
        self, hyperparameters: Mapping[str, Any], seed: int, number: int
    ) -> list[dict[str, Any]]:
        """Return the hyperparameters of the first points."""
        grid = Grid(hyperparameters)
        return [grid.point(place) for place in range(min(number, len(grid)))]

    @classmethod
    def find_contradictions(
        cls, searcher: Mapping[str, Any], hyperparameters: Mapping[str, Any]
    ) -> Iterator[Problem]:
        """Yield a problem for ranges without a number of values, and for too large a grid."""
        points, is_counted = 1, True
        for path, spec in leaves(hyperparameters):
            place = join_all(("hyperparameters", *path))
            for inner, constant in ranges_in_lists(spec, place):
                yield from _find_uncounted(constant, inner)
            kind = spec.get("type") if isinstance(spec, Mapping) else None
            if kind in _COUNTED:
                for problem in _find_uncounted(spec, place):
                    yield problem
                    is_counted = False
                points *= _count_values(spec)
            elif kind == "categorical" and isinstance(spec.get("vals"), list):
                points *= max(1, len(spec["vals"]))
        if is_counted and points > MAX_GRID:
            yield Problem(
                "hyperparameters",
                f"the grid has {points:,} points, expected at most {MAX_GRID:,}; "
                "lower the counts, or use searcher random",
            )


def _find_uncounted(spec: Mapping[str, Any], path: str) -> Iterator[Problem]:
    if spec["type"] in _COUNTED and spec.get("count") is None:
        yield Problem.missing(f"{path}.count", "; searcher grid needs the number of its values")


def _count_values(spec: Mapping[str, Any]) -> int:
    """Return how many values a range has in a grid; other problems of the range are ignored."""
    count = max(1, as_whole(spec.get("count")) or 1)
    low, high = as_whole(spec.get("minval")), as_whole(spec.get("maxval"))
    if spec["type"] == "int" and low is not None and high is not None and low < high:
        return min(count, high - low + 1)
    return count


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
        """Return the point with this index, from 0."""
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
