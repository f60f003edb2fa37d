"""The lengths of rungs, for checks of a configuration and for its search.

    rung i of n     max(int(max_length / divisor ** (n - 1 - i)), 1)

    max_length 9000, divisor 3, 3 rungs     1000  3000  9000
    12 epochs, divisor 3, 3 rungs              1     4    12
    3 epochs, divisor 4, 3 rungs               1     3      (3/16 and 3/4 both come to 1)

Where rounding brings rungs to the same length they are one rung.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
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


def rung_lengths(full: int, divisor: float, num_rungs: int) -> list[int]:
    """Return the lengths of the rungs, ascending.

    >>> rung_lengths(9000, 3, 3), rung_lengths(12, 3, 3), rung_lengths(3, 4, 3)
    ([1000, 3000, 9000], [1, 4, 12], [1, 3])
    """
    return sorted({max(_length_below(full, divisor, below), 1) for below in range(num_rungs)})


def _length_below(full: int, divisor: float, below: int) -> int:
    """Return the length of the rung that is so many below the top, 0 if it is under 1."""
    try:
        return int(full / divisor**below)
    except OverflowError:
        return 0


def most_rungs(amount: int, divisor: float) -> int:
    """Return how many rungs have different lengths, up to a length of `amount`.

    >>> most_rungs(10, 4)
    2
    """
    last, found = amount, 1
    while found < MAX_RUNGS and 1 <= (length := _length_below(amount, divisor, found)) < last:
        last, found = length, found + 1
    return found


def most_adaptive_rungs(max_rungs: int, full: int, max_trials: int, divisor: float) -> int:
    """Return the rungs of the longest bracket of adaptive ASHA."""
    scale = math.log(divisor)
    return min(max_rungs, int(math.log(full) / scale) + 1, int(math.log(max_trials) / scale) + 1)


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
    if (rungs := _num_rungs(searcher, time, divisor)) is None:
        return None
    return Length(unit, rung_lengths(time, divisor, min(rungs, MAX_RUNGS))[0])


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
    return most_adaptive_rungs(most, time, trials, divisor)
