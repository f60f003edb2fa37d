"""When a gang ends, from its progress; and when a waiting trial starts, if nothing is changed.

    first step                 now                          end
    |------- elapsed_s --------|------------ left ----------|
    |------- gained -----------|---- 1 - fraction ----------|

The rest is assumed to take as long per unit as what was done. The uncertainty shrinks with
progress: at 2 % the end may be twice as far away as estimated, near the end a tenth farther.

The known ends are simulated (`whatif`) in the order in which they are expected, and once more in
the order of their latest times; each simulation serves all that wait. A trial that starts during
the simulation has no known end, so a trial that waits for its slots has no known start. The
earliest start of a trial is computed as if it were alone in the queue.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import replace
from operator import attrgetter

from det_jupyter.contract.messages import Estimate
from det_jupyter.contract.values.text import count, short_time
from det_jupyter.scheduler.model import Policy, Running
from det_jupyter.scheduler.reasons.wait import WaitingRequest
from det_jupyter.scheduler.reasons.whatif import PoolChange, WhatIf, one_by_one

_ENDS = 32  # most ends that are simulated

_LEAST_GAINED = 0.02
_LEAST_SECONDS = 2.0
_LEAST_DOUBT = 0.1  # least uncertainty, as a fraction of the time left
_SLACK_S = 1.0  # for a last checkpoint, or a report that is late


def estimate_end(
    elapsed_s: float,
    fraction: float,
    *,
    now: float,
    first_fraction: float = 0.0,
    may_stop_early: bool = False,
    basis: str = "by its progress",
) -> Estimate | None:
    """Return when a running trial ends, or None as long as there is too little progress.

    Args:
        elapsed_s: Seconds since its first step in this run.
        fraction: The part of its target that is done, 0 to 1.
        now: UTC seconds.
        first_fraction: The part that was done at that first step; above 0 if it was resumed.
        may_stop_early: Whether its search may end it before its target.
        basis: The basis of the estimate in words, such as `by its progress`.
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


def expect_start(wait: WaitingRequest) -> tuple[Estimate | None, str]:
    """Return the estimated start of the request; or None, and why it is not known."""
    simulated = _simulate(wait, attrgetter("at")) if wait.is_complete else None
    if simulated is None:
        known = (gang for gang in _in_its_way(wait) if wait.survey.end_of(gang) is not None)
        if (wait.is_complete and not wait.in_the_way) or not _starts_alone(wait, known):
            return None, _why_unknown(wait)
        why = "others go first, and how long they will run is not known yet"
        if not wait.is_complete:
            why = "it is far behind in the queue"
        facts, soonest = wait.facts, _earliest(wait)
        if soonest < facts.now + 60:
            return None, why
        return None, f"{why}; not before {short_time(soonest, facts.now, facts.zone)}"
    (at, basis), latest = simulated, None
    if wait.pool.rules.policy is Policy.PRIORITY:
        longest = _simulate(wait, attrgetter("latest"))
        latest = max(at, longest[0]) if longest else None
    earliest = min(_earliest(wait), at)
    return Estimate(at=at, earliest=earliest, latest=latest, basis=basis), ""


def _simulate(
    wait: WaitingRequest, time_of: Callable[[Estimate], float | None]
) -> tuple[float, str] | None:
    """Return when the request starts if gangs end at these times, and what that is based on."""
    survey, now = wait.survey, wait.facts.now
    known = [
        (at, gang.request.id, gang, end.basis)
        for gang in wait.pool.running.values()
        if (end := survey.end_of(gang)) and (at := time_of(end)) is not None
    ]
    known = sorted(known)[:_ENDS]
    num = wait.steps(PoolChange(), *one_by_one(gang for _, _, gang, _ in known))
    if num is None:
        return None
    if num == 1:
        return now, "from what is free"
    at, _, _, basis = known[num - 2]
    return max(now, at), basis


def _earliest(wait: WaitingRequest) -> float:
    """Return when the request could start at the earliest if it were alone in the queue.

    A gang without an estimate may end at any moment.
    """
    now = wait.facts.now
    ends = [(gang, wait.survey.end_of(gang)) for gang in _in_its_way(wait)]
    soonest = [(max(now, end.earliest) if end else now, gang) for gang, end in ends]

    def starts_by(time: float) -> bool:
        return _starts_alone(wait, [gang for at, gang in soonest if at <= time])

    if starts_by(now):
        return now
    times = sorted({at for at, _ in soonest})
    return times[bisect_left(times[:-1], True, key=starts_by)]


def _starts_alone(wait: WaitingRequest, ended: Iterable[Running]) -> bool:
    """Return whether the request starts on its nearest agents if it is alone in the queue.

    Args:
        wait: The waiting request.
        ended: Gangs that count as ended.
    """
    alone = replace(
        wait.pool,
        agents={seats.id: seats.agent for seats in wait.nearest},
        waiting={wait.request.id: wait.request},
    )
    left = alone.without(*(gang.request.id for gang in ended))
    return WhatIf(left, wait.facts).steps(wait.request.id, [PoolChange()]) is not None


def _in_its_way(wait: WaitingRequest) -> list[Running]:
    """Return the gangs on the request's nearest agents, and those that count for its max_slots."""
    own = wait.group.id if wait.group.max_slots is not None else None
    mine = [gang for gang in wait.pool.running.values() if gang.request.group == own]
    near = [gang for gang in wait.gangs_on(wait.nearest) if gang.request.group != own]
    return mine + near


def _why_unknown(wait: WaitingRequest) -> str:
    most = wait.group.max_slots
    if most is not None and most < wait.request.slots:
        return "it cannot run as things are"
    unknown = [g for g in wait.gangs_on(wait.nearest) if wait.survey.end_of(g) is None]
    if any(gang.is_leaving for gang in unknown):
        return "how long it takes to leave is not known"
    if len(unknown) == 1:
        trial = wait.facts.trial_of(unknown[0].request.id)
        return f"how long trial {trial} will run is not known yet"
    if unknown:
        return f"how long {count(len(unknown), 'trial')} in its way will run is not known yet"
    return "it depends on what the trials in its way do"
