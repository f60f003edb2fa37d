"""When a waiting trial starts if nobody does anything: from the ends of those in its way.

The first in turn starts when enough of the gangs on one of its agents have ended. One further
behind starts at the latest when there is room for all that are ahead of it and for itself; if
there never is, somebody ahead has to end first, and nobody knows when a trial that waits will.
By shares the line changes with every end, so each moment is looked at by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from det_jupyter.scheduler.model import Policy, Running
from det_jupyter.scheduler.reasons.estimate import both_of, end_of_enough, first_of
from det_jupyter.scheduler.reasons.situation import Situation
from det_jupyter.scheduler.reasons.survey import Line, Room, slots_on
from det_jupyter.scheduler.reasons.whatif import gangs_on, kept_agents, overtaken, without
from det_jupyter.wire import Estimate
from det_jupyter.words import count, moment

_RUNNING = 256  # gangs that run; whose shares change when is not followed among more
_MOMENTS = 12


def expect_start(situation: Situation, rooms: Sequence[Room]) -> tuple[Estimate | None, str]:
    """Return when the request starts, and if nobody can tell, why.

    Args:
        situation: As it is.
        rooms: The agents where the request is nearest to fitting.
    """
    facts = situation.survey.facts
    is_by_priority = situation.survey.pool.rules.policy is Policy.PRIORITY
    if is_by_priority:
        # Whoever max_slots holds back now may go first as soon as those who run have ended.
        situation = overtaken(situation, situation.survey.pool.groups)
    alone = replace(situation, ahead=Line(), is_complete=True)
    own = _allowance_end(situation)
    soonest = both_of(own, _room_end(alone, rooms))
    if soonest is None:
        return None, _why_unknown(situation, rooms)
    if not situation.is_complete:
        return None, f"it is far behind in the queue{_not_before(situation, soonest)}"
    if is_by_priority and not situation.ahead.requests:
        return soonest, ""
    end = _room_end(situation, rooms) if is_by_priority else _shares_end(situation, rooms)
    latest = both_of(own, end)
    if latest is None:
        why = "others go first, and how long they will run is not known yet"
        return None, f"{why}{_not_before(situation, soonest)}"
    earliest = min(latest.at, max(facts.now, soonest.earliest))
    return latest.model_copy(update={"earliest": earliest}), ""


def _not_before(situation: Situation, soonest: Estimate) -> str:
    facts = situation.survey.facts
    if soonest.earliest < facts.now + 60:
        return ""
    return f"; not before {moment(soonest.earliest, facts.now, facts.zone)}"


def _at_once(now: float) -> Estimate:
    return Estimate(at=now, earliest=now, latest=now, basis="from what is free")


def _allowance_end(situation: Situation) -> Estimate | None:
    """Return when its experiment holds few enough slots."""
    facts, pool = situation.survey.facts, situation.survey.pool
    mates = situation.ahead.wanted.get(situation.request.group, 0)
    allowance = situation.allowance
    if allowance is None or allowance >= mates + situation.request.slots:
        return _at_once(facts.now)
    missing = mates + situation.request.slots - allowance
    own = [g for g in pool.running.values() if g.request.group == situation.request.group]
    ends = [(situation.end_of(gang), gang.request.slots) for gang in own]
    return end_of_enough(ends, missing, facts.now)


def _room_end(situation: Situation, rooms: Sequence[Room]) -> Estimate | None:
    """Return when there is room for the request and all ahead of it."""
    now = situation.survey.facts.now
    if situation.starts():
        return _at_once(now)
    if situation.request.slots == 0:
        needed = 1 + situation.num_places_ahead()
        ways = [
            _enough_on(situation, [room], needed - situation.places_left(room))
            for room in rooms
            if room.agent.is_open
        ]
        return first_of(ways, now)
    rivals = situation.rivals()
    if situation.spans_agents:
        if any(situation.claims(room, rivals) for room in rooms):
            return None
        missing = sum(room.used for room in rooms)
        return _enough_on(situation, rooms, missing) if missing else None
    ways = []
    kept = kept_agents(situation)
    for room in rooms:
        needed = situation.request.slots + situation.claims(room, rivals)
        if needed <= room.size:
            is_kept = room.agent.id in kept
            ways.append(_enough_on(situation, [room], needed - room.free, is_kept=is_kept))
    return first_of(ways, now)


def _shares_end(situation: Situation, rooms: Sequence[Room]) -> Estimate | None:
    """Return when there is room, counting whoever goes ahead because its group holds less then."""
    survey = situation.survey
    now = survey.facts.now
    if situation.starts():
        return _at_once(now)
    running = survey.pool.running
    if len(running) > _RUNNING:
        return None
    known = [(end, gang) for gang in running.values() if (end := situation.end_of(gang))]
    here = {gang.request.id for gang in gangs_on(situation, rooms)}
    kept = kept_agents(situation)
    barred = frozenset(name for name in situation.rooms if name not in kept)
    moments = sorted({end.at for end, gang in known if gang.request.id in here})
    for num, at in enumerate(moments[:_MOMENTS]):
        gone = [gang for end, gang in known if end.at <= at]
        then = without(situation, gone)
        if num:  # what is given back bit by bit stays only where it is kept
            then = replace(then, barred=barred)
        if then.starts():
            last = max((end for end, _ in known if end.at <= at), key=lambda end: end.at)
            return Estimate(at=max(now, at), earliest=now, latest=None, basis=last.basis)
    return None


def _enough_on(
    situation: Situation, rooms: Sequence[Room], missing: int, *, is_kept: bool = True
) -> Estimate | None:
    """Return when enough has been given back; bit by bit only where that is kept."""
    facts = situation.survey.facts
    if missing <= 0:
        return _at_once(facts.now)
    ends = [
        (situation.end_of(gang), given)
        for gang in gangs_on(situation, rooms)
        if (given := _given_back(gang, rooms)) >= missing or is_kept
    ]
    return end_of_enough(ends, missing, facts.now)


def _given_back(gang: Running, rooms: Sequence[Room]) -> int:
    if gang.request.slots == 0:
        return 1
    return sum(len(slots_on(gang, room.agent.id)) for room in rooms)


def _why_unknown(situation: Situation, rooms: Sequence[Room]) -> str:
    facts = situation.survey.facts
    most = situation.group.max_slots
    if most is not None and most < situation.request.slots:
        return "it cannot run as things are"
    unknown = [g for g in gangs_on(situation, rooms) if situation.end_of(g) is None]
    if any(gang.is_leaving for gang in unknown):
        return "how long it takes to save and leave is not known"
    if len(unknown) == 1:
        trial = facts.trial_of(unknown[0].request.id)
        return f"how long trial {trial} will run is not known yet"
    if unknown:
        return f"how long {count(len(unknown), 'trial')} in its way will run is not known yet"
    return "it depends on what those in its way do"
