"""When a waiting trial starts if nothing is changed: the known ends are played through the pool.

The gangs end in the order in which they are expected to, and once more in the order in which they
end at the latest. Each is played once for all that wait. A trial that starts on the way has no
known end, so what waits for its slots has no known start. A trial that has others in its way may
start as early as if it had not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

from det_jupyter.scheduler.model import Policy
from det_jupyter.scheduler.reasons.estimate import both_of, end_of_enough, first_of
from det_jupyter.scheduler.reasons.situation import Situation
from det_jupyter.scheduler.reasons.survey import Room, Survey
from det_jupyter.scheduler.reasons.whatif import Change, one_by_one
from det_jupyter.wire import Estimate
from det_jupyter.words import count, moment

_ENDS = 32  # that are played


def expect_start(situation: Situation) -> tuple[Estimate | None, str]:
    """Return when the request starts, and if that is not known, why."""
    survey, request = situation.survey, situation.request
    alone = _alone(situation)
    played = _play(survey, request.id, attrgetter("at"))
    if alone is None or (played is None and not situation.in_the_way and situation.is_complete):
        return None, _why_unknown(situation)
    if not situation.is_complete:
        return None, f"it is far behind in the queue{_not_before(situation, alone)}"
    if played is None:
        why = "others go first, and how long they will run is not known yet"
        return None, f"{why}{_not_before(situation, alone)}"
    (at, basis), latest = played, None
    if survey.pool.rules.policy is Policy.PRIORITY:
        longest = _play(survey, request.id, attrgetter("latest"))
        latest = max(at, longest[0]) if longest else None
    earliest = min(alone.earliest, at)
    return Estimate(at=at, earliest=earliest, latest=latest, basis=basis), ""


def _play(
    survey: Survey, request_id: str, time_of: Callable[[Estimate], float | None]
) -> tuple[float, str] | None:
    """Return when the request starts if gangs end at these times, and what that rests on."""
    known = [
        (at, gang.request.id, gang, end.basis)
        for gang in survey.pool.running.values()
        if (end := survey.end_of(gang)) and (at := time_of(end)) is not None
    ]
    known = sorted(known)[:_ENDS]
    changes = [Change(), *one_by_one(gang for _, _, gang, _ in known)]
    num = survey.whatif.after(*changes).started.get(request_id)
    if num is None:
        return None
    if num == 1:
        return survey.facts.now, "from what is free"
    at, _, _, basis = known[num - 2]
    return max(survey.facts.now, at), basis


def _not_before(situation: Situation, soonest: Estimate) -> str:
    facts = situation.survey.facts
    if soonest.earliest < facts.now + 60:
        return ""
    return f"; not before {moment(soonest.earliest, facts.now, facts.zone)}"


def _alone(situation: Situation) -> Estimate | None:
    """Return when the request could start, were nothing ahead of it."""
    survey, need, allowance = situation.survey, situation.request.slots, situation.allowance
    if allowance is None or allowance >= need:
        return _room_end(situation)
    gangs = (g for g in survey.pool.running.values() if g.request.group == situation.group.id)
    own = ((survey.end_of(gang), gang.request.slots) for gang in gangs)
    return both_of(_room_end(situation), end_of_enough(own, need - allowance, survey.facts.now))


def _room_end(situation: Situation) -> Estimate | None:
    now, rooms, need = situation.survey.facts.now, situation.nearest, situation.request.slots
    if situation.fits():
        return Estimate(at=now, earliest=now, latest=now, basis="from what is free")
    if situation.spans_agents:
        return _enough_on(situation, rooms, sum(situation.held(room) for room in rooms))
    missing = [need - room.size + situation.held(room) if need else 1 for room in rooms]
    ways = zip(rooms, missing, strict=True)
    return first_of((_enough_on(situation, [room], number) for room, number in ways), now)


def _enough_on(situation: Situation, rooms: Sequence[Room], missing: int) -> Estimate | None:
    gangs = [g for g in situation.gangs_on(rooms) if not situation.is_less_urgent(g)]
    given = [  # a gang without slots gives a place back
        (
            situation.survey.end_of(gang),
            sum(len(gang.slots_on(room.agent.id)) for room in rooms) if gang.request.slots else 1,
        )
        for gang in gangs
    ]
    return end_of_enough(given, max(1, missing), situation.survey.facts.now)


def _why_unknown(situation: Situation) -> str:
    survey = situation.survey
    most = situation.group.max_slots
    if most is not None and most < situation.request.slots:
        return "it cannot run as things are"
    unknown = [g for g in situation.gangs_on(situation.nearest) if survey.end_of(g) is None]
    if any(gang.is_leaving for gang in unknown):
        return "how long it takes to leave is not known"
    if len(unknown) == 1:
        trial = survey.facts.trial_of(unknown[0].request.id)
        return f"how long trial {trial} will run is not known yet"
    if unknown:
        return f"how long {count(len(unknown), 'trial')} in its way will run is not known yet"
    return "it depends on what those in its way do"
