"""Situations as they would be: somebody gone, enabled, freed.

All of these begin from a situation in which the request does not start.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from det_jupyter.scheduler.model import AgentSlots, Policy, Running
from det_jupyter.scheduler.possible import Capacity
from det_jupyter.scheduler.reasons.situation import Line, Room, Situation, room_of

NEARBY = 8  # agents that are looked at for who could make room


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
        if (gang.request.slots > 0) is has_slots
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
    return replace(
        uncapped(freed, groups), allowance=None if allowance is None else allowance + own
    )


def paused(situation: Situation, group_id: int, gangs: Collection[Running]) -> Situation:
    """Return the situation after an experiment was paused.

    Args:
        situation: As it is.
        group_id: The experiment; not the request's own.
        gangs: Those of its gangs that are counted as gone.
    """
    freed = _freed(situation, gangs)
    if group_id not in freed.ahead.wanted:
        return freed
    others = (other for other in freed.ahead.requests if other.group != group_id)
    return replace(freed, ahead=Line(others), looked_at=None)


def _freed(situation: Situation, gangs: Iterable[Running]) -> Situation:
    rooms = dict(situation.rooms)
    changed = set()
    for gang in gangs:
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
    # It does not start as it is, so only these can make the difference.
    return replace(situation, rooms=rooms, looked_at=tuple(rooms[name] for name in changed))


def uncapped(situation: Situation, groups: Collection[int]) -> Situation:
    """Return the situation where max_slots holds these groups back no more."""
    survey, request, line = situation.survey, situation.request, situation.ahead
    is_by_priority = survey.pool.rules.policy is Policy.PRIORITY
    position = survey.pool.position(request.id)
    front = survey.queue[:position] if is_by_priority else survey.queue
    # By shares, whoever gives slots back moves forward too, past the first in line.
    known = {other.id for other in line.requests if other.group in groups}
    more = [
        other
        for other in front
        if other.group in groups and other.group != request.group and other.id not in known
    ]
    return replace(
        situation,
        ahead=Line((*line.requests, *more)) if more else line,
        is_complete=situation.is_complete and (is_by_priority or survey.is_whole_queue),
    )


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
