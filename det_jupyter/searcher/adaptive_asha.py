"""`adaptive_asha`: several brackets of ASHA (bracket.py) with different numbers of rungs.

The brackets differ in how early they begin to stop trials, as the best choice is not known
beforehand.

    R = min(max_rungs, int(ln L / ln divisor) + 1, int(ln max_trials / ln divisor) + 1)

    aggressive        R                      conservative     1 ... R
    standard          (R-1)//2 + 1 ... R     bracket_rungs    as given

Trials are divided among the brackets by the weight divisor ** (r - 1) / r, at least one each, so
that all brackets train about the same amount. Trials left over by rounding go to the bracket with
the most rungs.

    16 trials, 937 batches, divisor 4     3 rungs: 12 trials    2 rungs: 4 trials
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from det_jupyter.contract.schema.fields import as_whole
from det_jupyter.searcher.halving import HalvingSection, shares
from det_jupyter.searcher.planning import BracketPlan
from det_jupyter.searcher.searcher_section import Rungs


class AdaptiveAshaSearcher(HalvingSection):
    """Several brackets of ASHA with different numbers of rungs."""

    name: Literal["adaptive_asha"]
    mode: Literal["standard", "aggressive", "conservative"] = "standard"
    """How early trials are stopped; conservative tries more kinds of brackets."""
    max_rungs: Rungs = 5
    """The most rungs that a bracket gets."""
    bracket_rungs: list[Rungs] = []
    """The rungs of each bracket, instead of what mode and max_rungs come to."""

    @property
    def rungs_of_brackets(self) -> list[int]:
        """The number of rungs of each bracket, descending."""
        if self.bracket_rungs:
            return sorted(self.bracket_rungs, reverse=True)
        most = _most_rungs(self.max_rungs, self.full, self.max_trials, self.divisor)
        fewest = {"aggressive": most, "standard": (most - 1) // 2 + 1, "conservative": 1}
        return list(range(most, fewest[self.mode] - 1, -1))

    def plan_brackets(self) -> list[BracketPlan]:
        """Return the brackets, the one with most rungs first."""
        num_rungs = self.rungs_of_brackets
        trials = bracket_max_trials(self.max_trials, self.divisor, num_rungs)
        at_work = self.concurrency(self.max_concurrent_trials, num_rungs, trials)
        return [BracketPlan(*plan) for plan in zip(num_rungs, trials, at_work, strict=True)]

    def concurrency(
        self, limit: int, num_rungs: Sequence[int], max_trials: Sequence[int]
    ) -> list[int]:
        """Return the concurrent trials of each bracket."""
        return bracket_max_concurrent(limit, self.divisor, max_trials)

    @classmethod
    def most_rungs_of(cls, searcher: Mapping[str, Any], time: int, divisor: float) -> int | None:
        """Return the most rungs of a bracket; None if the fields that determine it are invalid."""
        given = searcher.get("bracket_rungs") or []
        if isinstance(given, list) and given:
            counts = [count for item in given if (count := as_whole(item)) is not None]
            return max(counts) if counts and max(counts) >= 1 else None
        most, trials = as_whole(searcher.get("max_rungs", 5)), as_whole(searcher.get("max_trials"))
        if most is None or most < 1 or trials is None or trials < 1:
            return None
        return _most_rungs(most, time, trials, divisor)


def _most_rungs(max_rungs: int, full: int, max_trials: int, divisor: float) -> int:
    """Return the number of rungs of the longest bracket."""
    scale = math.log(divisor)
    return min(max_rungs, int(math.log(full) / scale) + 1, int(math.log(max_trials) / scale) + 1)


def bracket_max_trials(max_trials: int, divisor: float, num_rungs: Sequence[int]) -> list[int]:
    """Return the trials of each bracket, which together may be a few more than `max_trials`.

    >>> bracket_max_trials(20, 3, [3, 2, 1]), bracket_max_trials(100, 4, [4, 3, 2])
    ([12, 5, 3], [70, 22, 8])
    """
    trials = [max(share, 1) for share in shares(max_trials, divisor, num_rungs)]
    trials[0] += max(max_trials - sum(trials), 0)
    return trials


def bracket_max_concurrent(limit: int, divisor: float, max_trials: Sequence[int]) -> list[int]:
    """Return the concurrent trials of each bracket.

    >>> bracket_max_concurrent(0, 3, [9, 3, 1]), bracket_max_concurrent(11, 3, [9, 3, 1])
    ([3, 3, 3], [4, 4, 3])
    """
    if limit == 0:
        return [max(max_trials[-1], int(divisor))] * len(max_trials)
    each, rest = divmod(max(limit, len(max_trials)), len(max_trials))
    return [each + (number < rest) for number in range(len(max_trials))]
