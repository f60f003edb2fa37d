"""When a gang ends, from its progress, and when enough of them have ended.

    first step                 now                          end
    |------- elapsed_s --------|------------ left ----------|
    |------- gained -----------|---- 1 - fraction ----------|

What is left takes as long per unit as what was done did. How wrong that may be shrinks with what
has been seen: at 2 % the end may be twice as far off, near the end a tenth further than said.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from det_jupyter.wire import Estimate

_LEAST_GAINED = 0.02
_LEAST_SECONDS = 2.0
_LEAST_DOUBT = 0.1  # of what is left, however much has been seen
_SLACK_S = 1.0  # a last checkpoint, a report on its way


def estimate_end(
    elapsed_s: float,
    fraction: float,
    *,
    now: float,
    first_fraction: float = 0.0,
    may_stop_early: bool = False,
    basis: str = "by its progress",
) -> Estimate | None:
    """Return when a running trial ends, or None as long as its progress says too little.

    Args:
        elapsed_s: Seconds since its first step in this run.
        fraction: Of its target that is done, 0 to 1.
        now: UTC seconds.
        first_fraction: What had been done at that first step: above 0 when it was resumed.
        may_stop_early: Whether its search may end it before its target.
        basis: What the estimate rests on, in words.
    """
    gained = fraction - first_fraction
    if elapsed_s < _LEAST_SECONDS or gained < _LEAST_GAINED:
        return None
    rest = max(0.0, 1.0 - fraction)
    left = elapsed_s * rest / gained
    unseen = rest / (rest + gained)
    doubt = _LEAST_DOUBT + (1 - _LEAST_DOUBT) * unseen**2
    return Estimate(
        at=now + left,
        earliest=now if may_stop_early else now + left / (1 + doubt),
        latest=now + left * (1 + doubt) + _SLACK_S,
        basis=basis,
    )


def end_of_enough(
    ends: Iterable[tuple[Estimate | None, int]], missing: int, now: float
) -> Estimate | None:
    """Return when the ends so far have given back `missing` slots; None: unknown.

    A gang without an estimate may end at any moment, so it counts for `earliest` only.

    Args:
        ends: When each gang ends, if that is known, and how many slots that gives back.
        missing: How many are needed.
        now: UTC seconds; what was expected earlier is expected now.
    """
    ends = list(ends)
    known = [(end, slots) for end, slots in ends if end is not None]
    last = _reaching([(end.at, slots, end.basis) for end, slots in known], missing)
    if last is None:
        return None
    earliest = [(end.earliest, slots, "") if end else (now, slots, "") for end, slots in ends]
    latest = [(inf if end.latest is None else end.latest, slots, "") for end, slots in known]
    return Estimate(
        at=max(now, last[0]),
        earliest=max(now, _reached(earliest, missing)),
        latest=_finite(max(now, _reached(latest, missing))),
        basis=last[1],
    )


def _reaching(ends: list[tuple[float, int, str]], missing: int) -> tuple[float, str] | None:
    given_back = 0
    for at, slots, basis in sorted(ends):
        given_back += slots
        if given_back >= missing:
            return at, basis
    return None


def _reached(ends: list[tuple[float, int, str]], missing: int) -> float:
    reached = _reaching(ends, missing)
    return inf if reached is None else reached[0]


def _finite(at: float) -> float | None:
    return None if at == inf else at


def first_of(estimates: Iterable[Estimate | None], now: float) -> Estimate | None:
    """Return when the first of these happens; an unknown one may happen at once."""
    estimates = list(estimates)
    known = [estimate for estimate in estimates if estimate is not None]
    if not known:
        return None
    soonest = min(known, key=lambda estimate: estimate.at)
    return Estimate(
        at=soonest.at,
        earliest=min(estimate.earliest if estimate else now for estimate in estimates),
        latest=_finite(min(inf if e.latest is None else e.latest for e in known)),
        basis=soonest.basis,
    )


def both_of(one: Estimate | None, other: Estimate | None) -> Estimate | None:
    """Return when both have happened; None: unknown."""
    if one is None or other is None:
        return None
    later = max(one, other, key=lambda estimate: estimate.at)
    is_bounded = one.latest is not None and other.latest is not None
    return Estimate(
        at=later.at,
        earliest=max(one.earliest, other.earliest),
        latest=max(one.latest or 0.0, other.latest or 0.0) if is_bounded else None,
        basis=later.basis,
    )
