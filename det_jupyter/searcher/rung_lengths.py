"""The lengths of rungs, for checks of a configuration and for its search.

    rung i of n     max(int(max_length / divisor ** (n - 1 - i)), 1)

    max_length 9000, divisor 3, 3 rungs     1000  3000  9000
    12 epochs, divisor 3, 3 rungs              1     4    12
    3 epochs, divisor 4, 3 rungs               1     3      (3/16 and 3/4 both come to 1)

Rungs that have the same length after rounding are one rung.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from det_jupyter.contract.schema.fields import as_number, as_whole
from det_jupyter.contract.values.lengths import parse_length

MAX_RUNGS = 1000
DEFAULT_DIVISOR = 4


def rung_lengths(full: int, divisor: float, num_rungs: int) -> list[int]:
    """Return the lengths of the rungs, ascending.

    >>> rung_lengths(9000, 3, 3), rung_lengths(12, 3, 3), rung_lengths(3, 4, 3)
    ([1000, 3000, 9000], [1, 4, 12], [1, 3])
    """
    return sorted({max(_length_below(full, divisor, below), 1) for below in range(num_rungs)})


def _length_below(full: int, divisor: float, below: int) -> int:
    """Return the length of the rung `below` rungs under the top one; 0 if it is less than 1."""
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


def full_amount(searcher: Mapping[str, Any]) -> int | None:
    """Return the length of the top rung in the rungs' unit; None if it is missing or invalid."""
    if (time := as_whole(searcher.get("max_time"))) is not None:
        return time if time >= 1 else None
    try:
        return parse_length(searcher["max_length"]).amount or None
    except (KeyError, ValueError):
        return None


def divisor_of(searcher: Mapping[str, Any]) -> float | None:
    """Return the searcher's divisor; None if it is not a number above 1."""
    divisor = as_number(searcher.get("divisor", DEFAULT_DIVISOR))
    return divisor if divisor is not None and divisor > 1 else None
