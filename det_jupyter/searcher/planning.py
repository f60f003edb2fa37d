"""The shape of a bracket and its planned training, computed from its rungs before it runs.

Of n trials that reach a rung, this number continue to the next rung, if none fails:

              promote                      stop, time
    least     int(n / divisor)             1           each trial worse than those before
    most      n - ceil(divisor) + 1        n           each trial better than those before
    expected  max(int(n / divisor), 1), as in Determined's preview, within these bounds

The plan does not consider trials that fail or have invalid hyperparameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil

from det_jupyter.contract.values.lengths import Length
from det_jupyter.searcher.rung_lengths import rung_lengths

Ends = Mapping[int, int]  # number of trials that end at each length, lowest first


class Form(StrEnum):
    """How a bracket measures training and judges trials."""

    PROMOTE = "promote"
    STOP = "stop"
    TIME = "time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules that all brackets of a search share."""

    form: Form  # how trials are judged
    divisor: float  # the best 1/divisor of the trials continue
    unit: str  # of the rungs' lengths: a unit of training, or the time metric
    bound: Length | None = None  # where trials end at the latest; with `Form.TIME` only


@dataclass(frozen=True, slots=True)
class BracketPlan:
    """The shape of a bracket before it runs."""

    num_rungs: int
    max_trials: int
    max_concurrent_trials: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BracketForecast:
    """The planned training of a bracket.

    A search without brackets is planned as one bracket with one length.
    """

    trials: Ends  # expected number of trials that end at each length
    least_trials: Ends  # with the fewest possible trials continuing at each rung
    most_trials: Ends  # with the most possible trials continuing at each rung
    max_concurrent_trials: int  # most trials that are queued or run at a time


def plan_full_length(
    max_trials: int, max_concurrent_trials: int, full: int, *, least: int | None = None
) -> BracketForecast:
    """Return the planned training of trials that are not compared at rungs.

    Args:
        max_concurrent_trials: Most trials at a time; 0: no limit.
        least: Length from which on a trial may end early; None: all train to the full length.
    """
    trials = {full: max_trials}
    return BracketForecast(
        trials=trials,
        least_trials={least or full: max_trials},
        most_trials=trials,
        max_concurrent_trials=min(max_concurrent_trials or max_trials, max_trials),
    )


def plan_rungs(plan: BracketPlan, full: int, divisor: float, form: Form) -> BracketForecast:
    """Return the planned training of a bracket."""
    lengths = rung_lengths(full, divisor, plan.num_rungs)
    least, expected, most = [plan.max_trials], [plan.max_trials], [plan.max_trials]
    for _ in lengths[1:]:
        least.append(int(least[-1] / divisor) if form is Form.PROMOTE else 1)
        most.append(max(most[-1] - ceil(divisor) + 1, 0) if form is Form.PROMOTE else most[-1])
        expected.append(min(max(int(expected[-1] / divisor), 1), most[-1]))
    return BracketForecast(
        trials=_ends(lengths, expected),
        least_trials=_ends(lengths, least),
        most_trials=_ends(lengths, most),
        max_concurrent_trials=min(plan.max_concurrent_trials, plan.max_trials),
    )


def _ends(lengths: Sequence[int], arrivals: Sequence[int]) -> Ends:
    """Return how many trials end at each length.

    Args:
        lengths: The lengths of the rungs, ascending.
        arrivals: How many trials reach each of them.
    """
    ending = [come - go for come, go in zip(arrivals, [*arrivals[1:], 0], strict=True)]
    return dict(zip(lengths, ending, strict=True))
