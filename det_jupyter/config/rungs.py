"""The lengths of rungs, as far as a configuration can be checked against them.

rung i of n     max(int(max_length / divisor ** (n - 1 - i)), 1)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from det_jupyter.config.searchers import MAX_RUNGS
from det_jupyter.lengths import UNITS, Length, parse_length

_DEFAULT_RUNGS = 3
_DEFAULT_DIVISOR = 4


def number(value: Any) -> float | None:
    """Return the value if it is a number (a bool is none)."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if is_number and math.isfinite(value) else None


def whole(value: Any) -> int | None:
    """Return the value if it is a whole number."""
    found = number(value)
    return int(found) if found is not None and float(found).is_integer() else None


def most_rungs(amount: int, divisor: float) -> int:
    """Return how many rungs have different lengths, up to a length of `amount`.

    >>> most_rungs(10, 4)
    2
    """
    lengths = _lengths_downward(amount, divisor)
    last = next(lengths)
    found = 1
    for length in lengths:
        if not 1 <= length < last or found == MAX_RUNGS:
            break
        last = length
        found += 1
    return found


def _lengths_downward(amount: int, divisor: float) -> Iterator[int]:
    scale = 1.0
    while True:
        yield int(amount / scale)
        scale *= divisor


def full_amount(searcher: Mapping[str, Any]) -> int | None:
    """Return how far the best trials train, in the unit that they are judged in."""
    if (time := whole(searcher.get("max_time"))) is not None:
        return time if time >= 1 else None
    try:
        return parse_length(searcher["max_length"]).amount or None
    except (KeyError, ValueError):
        return None


def divisor_of(searcher: Mapping[str, Any]) -> float | None:
    """Return the searcher's divisor, None if it is none."""
    divisor = number(searcher.get("divisor", _DEFAULT_DIVISOR))
    return divisor if divisor is not None and divisor > 1 else None


def default_num_rungs(searcher: Mapping[str, Any]) -> int:
    """Return how many rungs there are with Optuna unless the user says so."""
    amount, divisor = full_amount(searcher), divisor_of(searcher)
    if amount is None or divisor is None:
        return _DEFAULT_RUNGS
    return min(_DEFAULT_RUNGS, most_rungs(amount, divisor))


def lowest_rung(searcher: Mapping[str, Any]) -> Length | None:
    """Return the lowest rung of a search by `time_metric`, if that is a unit of training."""
    unit = searcher.get("time_metric")
    time, divisor = whole(searcher.get("max_time")), divisor_of(searcher)
    if unit not in UNITS or time is None or time < 1 or divisor is None:
        return None
    rungs = _num_rungs(searcher, time, divisor)
    if rungs is None:
        return None
    below = [length for length in _some(time, divisor, rungs) if length >= 1]
    return Length(unit, min(below))


def _some(time: int, divisor: float, rungs: int) -> list[int]:
    lengths = _lengths_downward(time, divisor)
    return [length for length, _ in zip(lengths, range(min(rungs, MAX_RUNGS)), strict=False)]


def _num_rungs(searcher: Mapping[str, Any], time: int, divisor: float) -> int | None:
    """Return the rungs of the bracket that has most."""
    if searcher.get("name") == "async_halving":
        found = whole(searcher.get("num_rungs"))
        return found if found is not None and found >= 1 else None
    given = searcher.get("bracket_rungs") or []
    if isinstance(given, list) and given:
        counts = [count for item in given if (count := whole(item)) is not None]
        return max(counts) if counts and max(counts) >= 1 else None
    most, trials = whole(searcher.get("max_rungs", 5)), whole(searcher.get("max_trials"))
    if most is None or most < 1 or trials is None or trials < 1:
        return None
    scale = math.log(divisor)
    return min(most, int(math.log(time) / scale) + 1, int(math.log(trials) / scale) + 1)
