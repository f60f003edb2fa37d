"""The brackets of `async_halving` and `adaptive_asha`: how many rungs, how many trials.

`adaptive_asha` has several brackets, which differ in the number of their rungs, that is, in how
early they begin to stop trials: which is best is not known beforehand.

    R = min(max_rungs, int(ln L / ln divisor) + 1, int(ln max_trials / ln divisor) + 1)

    aggressive        R                      conservative     1 ... R
    standard          (R-1)//2 + 1 ... R     bracket_rungs    as given

Each gets trials by the weight divisor ** (r - 1) / r, one at least, so that all train about
as much. What rounding leaves over goes to the bracket with most rungs.

    16 trials, 937 batches, divisor 4     3 rungs: 12 trials    2 rungs: 4 trials
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from det_jupyter.config import Length
from det_jupyter.config.rungs import most_adaptive_rungs
from det_jupyter.config.searchers import AdaptiveAshaSearcher, AsyncHalvingSearcher
from det_jupyter.lengths import parse_length

HalvingSearcher = AsyncHalvingSearcher | AdaptiveAshaSearcher


class Form(StrEnum):
    """How a bracket measures and judges."""

    PROMOTE = "promote"
    STOP = "stop"
    TIME = "time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What all brackets of a search have in common."""

    form: Form  # how trials are judged
    divisor: float  # one of so many goes on
    unit: str  # of the rungs' lengths: a unit of training, or the time metric
    bound: Length | None = None  # where trials end at the latest; with `Form.TIME` only


@dataclass(frozen=True, slots=True)
class BracketPlan:
    """The shape of a bracket before it runs."""

    num_rungs: int
    max_trials: int
    max_concurrent_trials: int


def make_rules(searcher: HalvingSearcher) -> Rules:
    """Return what the brackets have in common."""
    if searcher.time_metric is None:
        assert searcher.max_length is not None, "config asks for one or the other"
        form = Form.STOP if searcher.stop_once else Form.PROMOTE
        return Rules(form=form, divisor=searcher.divisor, unit=searcher.max_length.unit)
    return Rules(
        form=Form.TIME,
        divisor=searcher.divisor,
        unit=searcher.time_metric,
        bound=searcher.max_length or parse_length({searcher.time_metric: full_length(searcher)}),
    )


def full_length(searcher: HalvingSearcher) -> int:
    """Return the length of the top rungs."""
    if searcher.time_metric is not None:
        assert searcher.max_time is not None, "config asks for both"
        return searcher.max_time
    assert searcher.max_length is not None, "config asks for one or the other"
    return searcher.max_length.amount


def plan_brackets(searcher: HalvingSearcher) -> list[BracketPlan]:
    """Return the brackets of a search, the one with most rungs first."""
    if isinstance(searcher, AsyncHalvingSearcher):
        num_rungs, trials = [searcher.num_rungs], [searcher.max_trials]
    else:
        num_rungs = bracket_rungs(searcher)
        trials = bracket_max_trials(searcher.max_trials, searcher.divisor, num_rungs)
    concurrent = concurrency(searcher, searcher.max_concurrent_trials, num_rungs, trials)
    return [BracketPlan(*plan) for plan in zip(num_rungs, trials, concurrent, strict=True)]


def bracket_rungs(searcher: AdaptiveAshaSearcher) -> list[int]:
    """Return the number of rungs of each bracket, descending."""
    if searcher.bracket_rungs:
        return sorted(searcher.bracket_rungs, reverse=True)
    most = most_adaptive_rungs(
        searcher.max_rungs, full_length(searcher), searcher.max_trials, searcher.divisor
    )
    fewest = {"aggressive": most, "standard": (most - 1) // 2 + 1, "conservative": 1}
    return list(range(most, fewest[searcher.mode] - 1, -1))


def bracket_max_trials(max_trials: int, divisor: float, num_rungs: Sequence[int]) -> list[int]:
    """Return the trials of each bracket, which together may be a few more than `max_trials`.

    >>> bracket_max_trials(20, 3, [3, 2, 1]), bracket_max_trials(100, 4, [4, 3, 2])
    ([12, 5, 3], [70, 22, 8])
    """
    trials = [max(share, 1) for share in shares(max_trials, divisor, num_rungs)]
    trials[0] += max(max_trials - sum(trials), 0)
    return trials


def shares(max_trials: int, divisor: float, num_rungs: Sequence[int]) -> list[int]:
    """Return what each bracket gets of so many trials, rounded down."""
    weights = [divisor ** (rungs - 1) / rungs for rungs in num_rungs]
    total = sum(weights)
    return [int(weight / total * max_trials) for weight in weights]


def bracket_max_concurrent(limit: int, divisor: float, max_trials: Sequence[int]) -> list[int]:
    """Return how many trials each bracket has at work at a time.

    >>> bracket_max_concurrent(0, 3, [9, 3, 1]), bracket_max_concurrent(11, 3, [9, 3, 1])
    ([3, 3, 3], [4, 4, 3])
    """
    if limit == 0:
        return [max(max_trials[-1], int(divisor))] * len(max_trials)
    each, rest = divmod(max(limit, len(max_trials)), len(max_trials))
    return [each + (number < rest) for number in range(len(max_trials))]


def concurrency(
    searcher: HalvingSearcher, limit: int, num_rungs: Sequence[int], max_trials: Sequence[int]
) -> list[int]:
    """Return how many trials each bracket has at work at a time; `limit` 0: as many as suit it."""
    if isinstance(searcher, AdaptiveAshaSearcher):
        return bracket_max_concurrent(limit, searcher.divisor, max_trials)
    if limit > 0:
        return [min(limit, max_trials[0])]
    suitable = searcher.divisor ** (num_rungs[0] - 1)
    return [int(max(min(suitable, max_trials[0]), 1))]
