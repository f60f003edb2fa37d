"""Situations as they would be: somebody gone, asked to leave, enabled, freed.

All of these begin from a situation in which the request does not start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from heapq import nlargest

from det_jupyter.scheduler.model import AgentSlots, Policy, Request, Running
from det_jupyter.scheduler.reasons.possible import Capacity
from det_jupyter.scheduler.reasons.situation import Situation
from det_jupyter.scheduler.reasons.survey import Place, Room, room_of

NEARBY = 8  # agents that are looked at for who could make room
_CLEARED = 32  # agents that are looked at for who would be asked to leave


def nearest_rooms(situation: Situation) -> list[Room]:
    """Return the agents where the request is nearest to fitting, the nearest first."""
    need = situation.request.slots
    if situation.spans_agents:
        return _nearest_wholes(situation)
    rooms = [room for room in situation.allowed() if room.size >= need]
    rooms.sort(key=lambda room: (-min(need, room.free), room.agent.id))
    return rooms[:NEARBY]


def _nearest_wholes(situation: Situation) -> list[Room]:
    """Return those whole agents that would do and where the fewest slots are held."""
    need = situation.request.slots
    by_size: dict[tuple[str, int], list[Room]] = {}
    for room in situation.allowed():
        by_size.setdefault((room.agent.kind, room.size), []).append(room)
    ways = []
    for (kind, size), rooms in by_size.items():
        if size and need % size == 0 and need <= size * len(rooms):
            rooms.sort(key=lambda room: (room.used, room.agent.id))
            way = rooms[: need // size]
            ways.append((sum(room.used for room in way), -size, kind, way))
    if ways:
        return min(ways, key=lambda way: way[:3])[3]
    return sorted(situation.allowed(), key=lambda room: (room.used, room.agent.id))


def gangs_on(situation: Situation, rooms: Iterable[Room]) -> list[Running]:
    """Return who holds slots on these agents (places, for a request without slots)."""
    pool = situation.survey.pool
    has_slots = situation.request.slots > 0
    gangs = {
        gang.request.id: gang
        for room in rooms
        for gang in pool.on_agent(room.agent.id)
        if (gang.request.slots > 0) is has_slots and gang.request.id not in situation.ended
    }
    return list(gangs.values())


def without(situation: Situation, gangs: Collection[Running]) -> Situation:
    """Return the situation after these gangs have ended; what waits of their experiments stays."""
    freed = _freed(situation, gangs)
    groups = {gang.request.group for gang in gangs}
    own = sum(
        gang.request.slots for gang in gangs if gang.request.group == situation.request.group
    )
    allowance = situation.allowance
    return overtaken(
        replace(freed, allowance=None if allowance is None else allowance + own), groups
    )


def paused(
    situation: Situation, group_ids: Collection[int], gangs: Collection[Running]
) -> Situation:
    """Return the situation after experiments were paused.

    Args:
        situation: As it is.
        group_ids: The experiments; not the request's own.
        gangs: Those of their gangs that are counted as gone.
    """
    freed = _freed(situation, gangs)
    if situation.survey.pool.rules.policy is not Policy.PRIORITY:
        overtaking = _who_overtakes(freed)
        freed = _behind(freed, [other for other in overtaking if other.group not in group_ids])
    if not any(group_id in freed.ahead.by_group for group_id in group_ids):
        return freed
    return replace(freed, ahead=freed.ahead.without_groups(group_ids), looked_at=None)


def _freed(situation: Situation, gangs: Iterable[Running]) -> Situation:
    rooms = dict(situation.rooms)
    changed: set[str] = set()
    ended: set[str] = set(situation.ended)
    released: Counter[int] = Counter(situation.released)
    for gang in gangs:
        ended.add(gang.request.id)
        released[gang.request.group] += gang.request.slots
        for part in gang.parts:
            if (room := rooms.get(part.agent_id)) is not None:
                back = len(set(part.slot_ids).intersection(room.agent.slots))
                rooms[part.agent_id] = Room(
                    room.agent,
                    room.free + back,
                    room.used - len(part.slot_ids),
                    room.num_aux_gone + (not gang.request.slots),
                )
                changed.add(part.agent_id)
    if situation.looked_at is not None:
        changed |= {room.agent.id for room in situation.looked_at}
    # It does not start as it is, so only these can make the difference.
    return replace(
        situation,
        rooms=rooms,
        looked_at=tuple(rooms[name] for name in changed),
        ended=frozenset(ended),
        released=released,
    )


def overtaken(situation: Situation, groups: Collection[int]) -> Situation:
    """Return the situation with those in line that go first once these groups hold less.

    By priority those are the ones that max_slots held back; by shares all of whom the group now
    holds so little that its place is ahead.
    """
    survey = situation.survey
    if survey.pool.rules.policy is Policy.PRIORITY:
        facts = survey.pool.groups
        capped = {group for group in groups if facts[group].max_slots is not None}
        position = survey.pool.position(situation.request.id) if capped else 0
        front = [other for other in survey.queue[:position] if other.group in capped]
        return _behind(situation, front)
    is_complete = situation.is_complete and survey.is_whole_queue
    return replace(_behind(situation, _who_overtakes(situation)), is_complete=is_complete)


def _behind(situation: Situation, others: Iterable[Request]) -> Situation:
    line, own = situation.ahead, situation.request.group
    more = [other for other in others if other.group != own and other.id not in line.ids]
    return replace(situation, ahead=line.extended(more)) if more else situation


def _who_overtakes(situation: Situation) -> Iterator[Request]:
    """Yield those of groups that hold less whose place by shares is ahead.

    In turns also those of any group that has fewer slots: after each start all are tried anew,
    each group at its first turn.
    """
    survey = situation.survey
    places = survey.places.get(situation.request.group, ())
    mine = next((p for p in places if p.request.id == situation.request.id), None)
    if mine is None:
        return
    has_turns = survey.pool.rules.policy is Policy.ROUND_ROBIN
    for group_id in situation.released:
        yield from _ahead_of(situation, mine, group_id, has_turns=has_turns)
    if has_turns:
        known = survey.by_turns
        if mine.request.id not in known:
            now = replace(situation, released={})
            known[mine.request.id] = [
                other
                for group_id in survey.places
                for other in _ahead_of(now, mine, group_id, has_turns=True)
            ]
        yield from known[mine.request.id]


def _ahead_of(
    situation: Situation, mine: Place, group_id: int, *, has_turns: bool
) -> Iterator[Request]:
    share = _share(situation, mine)
    for place in situation.survey.places.get(group_id, ()):
        there = _share(situation, place)
        if there < share or (has_turns and (place.turn, *there) < (mine.turn, *share)):
            yield place.request
        else:
            return  # nor do those behind it


def _share(situation: Situation, place: Place) -> tuple[float, float, int, int, str]:
    pool, request = situation.survey.pool, place.request
    group = pool.groups[request.group]
    held = pool.held(group.id) - situation.released.get(group.id, 0) + place.slots_ahead
    weight = group.weight if pool.rules.policy is Policy.FAIR_SHARE else 1.0
    return (held / weight, group.position, group.id, request.number, request.id)


def who_is_less_urgent(situation: Situation, rooms: Iterable[Room]) -> list[Running]:
    """Return the gangs that the pool itself asks to leave as soon as that makes room.

    Nobody can tell for whom while others are ahead, so none are counted then; and nobody is asked
    for a mixed fit.
    """
    pool, own = situation.survey.pool, situation.group
    if not pool.rules.preemption or pool.rules.policy is not Policy.PRIORITY:
        return []
    rooms = list(rooms)
    if not situation.is_complete or not situation.request.slots or situation.rivals():
        return []
    if situation.spans_agents and len({room.size for room in rooms}) > 1:
        return []
    return [
        gang
        for gang in gangs_on(situation, rooms)
        if pool.groups[gang.request.group].priority > own.priority and not gang.is_leaving
    ]


def cleared(situation: Situation) -> Situation:
    """Return the situation as if all who would be asked to leave had left."""
    own, need = situation.group, situation.request.slots
    if all(group.priority <= own.priority for group in situation.survey.pool.groups.values()):
        return situation
    if situation.spans_agents:
        rooms = nearest_rooms(situation)
    else:
        rooms = [room for room in situation.allowed() if room.size >= need]
        rooms = nlargest(_CLEARED, rooms, key=lambda room: room.free)
    lesser = who_is_less_urgent(situation, rooms)
    if not lesser:
        return situation
    then = replace(_freed(situation, lesser), looked_at=None)
    leaving = [gang for gang in gangs_on(then, rooms) if gang.is_leaving]
    # If that were enough, they would have been asked: something else is in the way.
    return situation if without(then, leaving).starts() else then


def kept_agents(situation: Situation) -> Collection[str]:
    """Return the agents where nobody behind the request takes what is given back bit by bit."""
    pool, survey = situation.survey.pool, situation.survey
    position = pool.position(situation.request.id)
    if pool.num_waiting == position + 1:
        return situation.rooms.keys()
    return {
        agent_id
        for request_id, agents in pool.reservations().items()
        if survey.ranks.get(request_id, position + 1) <= position
        for agent_id in agents
    }


def with_agents(situation: Situation, agents: Iterable[AgentSlots]) -> Situation:
    """Return the situation with these agents, new ones or instead of what they offer now."""
    pool = situation.survey.pool
    rooms: Mapping[str, Room] = {
        **situation.rooms,
        **{agent.id: room_of(pool, agent) for agent in agents},
    }
    capacity = Capacity((room.agent for room in rooms.values()), pool.rules)
    return replace(situation, rooms=rooms, capacity=capacity)


def with_slots(situation: Situation, agent_id: str, slots: Collection[int]) -> Situation:
    """Return the situation with more slots of an agent given out."""
    agent = situation.rooms[agent_id].agent
    more = tuple(sorted({*agent.slots, *slots}))
    return with_agents(situation, [replace(agent, slots=more, is_open=True)])
