"""Compares the throughput of a changed trial with that of the unchanged one, with an interval.

Recipes run in rounds, every other one backwards; each round includes the unchanged trial A:

    A B C  C B A  A B C        ratios of B: b1/a1, b2/a2, b3/a3

A machine that is slower in one round is slower for both runs of a pair, which cancels out in the
ratio. One that becomes slower from run to run slows the second run of each pair, which alternates.
So the noise is the variation of ratios, not that of rates.

    interval   t-interval of the ratios' logarithms, 90 %
    gain       the interval is above 1, and the median ratio above 1.03; loss: the inverse
    unclear    neither, and the interval contains gains or losses of more than 20 %
    none       otherwise

Of changes without effect, at most 5 % are reported as a gain and 5 % as a loss, however noisy the
machine is (tests/unit/diagnosis/test_gains.py has the simulation, and the power).

Prior art: the t-interval for few runs of Georges et al., "Statistically rigorous Java performance
evaluation" (OOPSLA 2007), of the ratio itself as in Kalibera and Jones, "Rigorous benchmarking in
reasonable time" (ISMM 2013).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt
from statistics import fmean, median, stdev
from typing import Literal, TypeVar

LEAST_GAIN = 0.03
HIDDEN = 0.2  # the largest gain or loss in an interval that counts as "none"

# The 95th percentile of Student's t, by degrees of freedom from 1 on; the last one for all above.
_STUDENT = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812)

Sign = Literal["gain", "loss", "none", "unclear"]
Rates = Mapping[int, float]  # records per second, by round
_T = TypeVar("_T")


def in_turns(each: Sequence[_T], rounds: range) -> Iterator[tuple[int, _T]]:
    """Yield round and item of all runs: in this order, backwards in every other round.

    >>> "".join(one for _, one in in_turns("ABC", range(3, 6)))
    'ABCCBAABC'
    """
    for place, turn in enumerate(rounds):
        yield from ((turn, one) for one in (each[::-1] if place % 2 else each))


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median, lowest and highest ratio of the rounds, and their confidence interval."""

    middle: float
    low: float
    high: float
    at_least: float = 0.0
    at_most: float = inf

    @property
    def text(self) -> str:
        """The numbers alone, for a cell of a table."""
        return str(self).replace(" times", "")

    @property
    def variation(self) -> float:
        """The relative difference of the highest and the lowest round.

        >>> ratio_of({0: 20.0, 1: 30.0}, {0: 10.0, 1: 10.0}).variation
        0.5
        """
        return self.high / self.low - 1

    @property
    def sign(self) -> Sign:
        """The result of the interval: a gain, a loss, neither ("none"), or too wide to tell."""
        if self.at_least > 1 and self.middle > 1 + LEAST_GAIN:
            return "gain"
        if self.at_most < 1 and self.middle < 1 / (1 + LEAST_GAIN):
            return "loss"
        is_close = self.at_least >= 1 / (1 + HIDDEN) and self.at_most <= 1 + HIDDEN
        return "none" if is_close else "unclear"

    def __str__(self) -> str:
        spread = "" if self.low == self.high else f" ({self.low:.2f} to {self.high:.2f})"
        return f"{self.middle:.2f} times{spread}"


def ratio_of(one: Rates, other: Rates, times: float = 1.0) -> Ratio | None:
    """Return `one / (times * other)` over the rounds that both have; None without any.

    >>> print(ratio_of({0: 20.0, 1: 22.0, 2: 30.0}, {0: 10.0, 1: 10.0}))
    2.10 times (2.00 to 2.20)
    """
    ratios = [one[turn] / (times * other[turn]) for turn in one if other.get(turn)]
    if not ratios:
        return None
    return Ratio(median(ratios), min(ratios), max(ratios), *_interval(ratios))


def _interval(ratios: Sequence[float]) -> tuple[float, float]:
    if len(ratios) < 2:
        return 0.0, inf
    logs = [log(ratio) for ratio in ratios]
    student = _STUDENT[min(len(logs) - 1, len(_STUDENT)) - 1]
    middle, reach = fmean(logs), student * stdev(logs) / sqrt(len(logs))
    return exp(middle - reach), exp(middle + reach)


def variation_of(rates: Rates) -> float:
    """Return the relative difference of the highest and the lowest rate of one recipe.

    >>> variation_of({0: 100.0, 1: 110.0})
    0.1
    """
    return round(max(rates.values()) / min(rates.values()) - 1, 4)
