"""What a change gains: throughput beside that of the trial as it is, and how far to trust it.

Recipes run in rounds, A B C A B C, so each run has one of the trial as it is beside it. The gain
is the median of the rounds' ratios. It counts if every round agrees on its sign, and if it is
larger than the noise: the most by which the trial as it is differs from itself, or 3 %.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Literal

LEAST_NOISE = 0.03

Sign = Literal["gain", "loss", "none"]
Rates = Mapping[int, float]  # records per second, by round


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median of the rounds' ratios, and the lowest and highest."""

    middle: float
    low: float
    high: float

    @property
    def text(self) -> str:
        """The numbers, for a cell of a table."""
        return str(self).replace(" times", "")

    def __str__(self) -> str:
        spread = "" if self.low == self.high else f" ({self.low:.2f} to {self.high:.2f})"
        return f"{self.middle:.2f} times{spread}"


def ratio_of(one: Rates, other: Rates, times: float = 1.0) -> Ratio | None:
    """Return `one / (times * other)` over the rounds that both have; None if there are none.

    >>> print(ratio_of({0: 20.0, 1: 22.0, 2: 30.0}, {0: 10.0, 1: 10.0}))
    2.10 times (2.00 to 2.20)
    """
    ratios = [one[turn] / (times * other[turn]) for turn in one if other.get(turn)]
    return Ratio(median(ratios), min(ratios), max(ratios)) if ratios else None


def noise_of(as_it_is: Rates) -> float:
    """Return by how much one thing differs from itself, as a fraction.

    >>> noise_of({0: 100.0, 1: 110.0}), noise_of({0: 100.0, 1: 101.0})
    (0.1, 0.03)
    """
    rates = as_it_is.values()
    return max(LEAST_NOISE, round(max(rates) / min(rates) - 1, 4))


def sign_of(ratio: Ratio, noise: float) -> Sign:
    """Return whether a ratio is a gain.

    >>> [sign_of(Ratio(*r), 0.1) for r in ((1.3, 1.2, 1.4), (1.3, 0.9, 1.4), (1.09, 1.08, 1.1))]
    ['gain', 'none', 'none']
    """
    if ratio.low > 1 and ratio.middle > 1 + noise:
        return "gain"
    if ratio.high < 1 and 1 / ratio.middle > 1 + noise:
        return "loss"
    return "none"
