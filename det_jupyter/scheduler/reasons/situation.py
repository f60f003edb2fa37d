"""The pool as one waiting gang meets it: where it nearly fits, and what is in its way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from det_jupyter.scheduler.model import AgentSlots, Group, Policy, Request, Running
from det_jupyter.scheduler.reasons.facts import Withheld
from det_jupyter.scheduler.reasons.possible import Capacity, fits_on_wholes, wholes_of
from det_jupyter.scheduler.reasons.survey import Room, Survey
from det_jupyter.scheduler.reasons.whatif import Change

NEARBY = 8  # agents that are looked at


@dataclass(frozen=True)
class Situation:
    """A pool seen by one waiting request.

    Args:
        survey: What is.
        request: Who waits.
        position: How many are ahead of it.
    """

    survey: Survey
    request: Request
    position: int

    @property
    def group(self) -> Group:
        """The request's experiment."""
        return self.survey.pool.groups[self.request.group]

    @property
    def is_complete(self) -> bool:
        """Whether all that are ahead are among those looked at."""
        return self.position <= len(self.survey.queue)

    @property
    def spans_agents(self) -> bool:
        """Whether the request gets whole agents, because none is large enough for it."""
        return self.survey.capacity.spans_agents(self.request.shape)

    @property
    def allowance(self) -> int | None:
        """How many more slots its experiment may hold; None: any number."""
        most = self.group.max_slots
        return None if most is None else most - self.survey.pool.held(self.group.id)

    @cached_property
    def allowed(self) -> list[Room]:
        """The agents that the request may run on."""
        rooms = self.survey.rooms.values()
        return [room for room in rooms if room.agent.id not in self.request.blocked]

    @cached_property
    def withheld(self) -> list[tuple[str, Withheld]]:
        """What is withheld of connected agents that the request may run on."""
        rooms, blocked, withheld = self.survey.rooms, self.request.blocked, self.survey.withheld
        return [(id, one) for id, one in withheld.items() if id in rooms and id not in blocked]

    def starts(self, *changes: Change) -> bool:
        """Whether the request starts after these changes."""
        return self.request.id in self.survey.whatif.after(*changes).started

    def steps(self, *changes: Change) -> int | None:
        """Return after how many of these changes the request starts; None: not at all."""
        return self.survey.whatif.after(*changes).started.get(self.request.id)

    def is_possible(self) -> bool:
        """Whether the pool could run the request if nothing else was there."""
        return self.survey.capacity.can_run(self.request.shape)

    def is_possible_with(self, agents: Iterable[AgentSlots]) -> bool:
        """Whether it could with these agents, new ones or instead of what they offer now."""
        all_agents = {room.agent.id: room.agent for room in self.survey.rooms.values()}
        all_agents |= {agent.id: agent for agent in agents}
        capacity = Capacity(all_agents.values(), self.survey.pool.rules)
        return capacity.can_run(self.request.shape)

    def fits(self) -> bool:
        """Whether the request fits into what is free, were nothing ahead of it."""
        need, rules = self.request.slots, self.survey.pool.rules
        if need == 0:
            most = rules.max_aux_per_agent
            return any(r.agent.is_open and len(self.gangs_on([r])) < most for r in self.allowed)
        if not self.spans_agents:
            return any(room.free >= need for room in self.allowed)
        idle = [room.agent for room in self.allowed if room.free == room.size > room.used == 0]
        return fits_on_wholes(need, wholes_of(idle), rules)

    @cached_property
    def nearest(self) -> list[Room]:
        """The agents where the request is nearest to fitting, the nearest first."""
        need = self.request.slots
        if self.spans_agents:
            return self._nearest_wholes()
        rooms = [room for room in self.allowed if room.size >= need]
        rooms.sort(key=lambda room: (self.held(room) - room.size, room.agent.id))
        if need:
            rooms.sort(key=lambda room: -min(need, room.size - self.held(room)))
        return rooms[:NEARBY]

    def _nearest_wholes(self) -> list[Room]:
        """Return those whole agents that would do and where the fewest slots are held."""
        need = self.request.slots
        by_size: dict[tuple[str, int], list[Room]] = {}
        for room in self.allowed:
            by_size.setdefault((room.agent.kind, room.size), []).append(room)
        ways = []
        for (kind, size), rooms in by_size.items():
            if size and need % size == 0 and need <= size * len(rooms):
                rooms.sort(key=lambda room: (self.held(room), room.agent.id))
                way = rooms[: need // size]
                ways.append((sum(self.held(room) for room in way), -size, kind, way))
        if ways:
            return min(ways, key=lambda way: way[:3])[3]
        return sorted(self.allowed, key=lambda room: (self.held(room), room.agent.id))

    def held(self, room: Room) -> int:
        """Return the slots that are held here, without those of gangs that it can have leave."""
        if not self._may_preempt:
            return room.used
        gangs = self.survey.pool.on_agent(room.agent.id)
        less = (gang for gang in gangs if self.is_less_urgent(gang))
        return room.used - sum(len(gang.slots_on(room.agent.id)) for gang in less)

    @property
    def _may_preempt(self) -> bool:
        rules = self.survey.pool.rules
        return rules.preemption and rules.policy is Policy.PRIORITY and self.request.slots > 0

    def is_less_urgent(self, gang: Running) -> bool:
        """Whether the pool itself asks a gang to leave as soon as that makes room."""
        theirs = self.survey.pool.groups[gang.request.group].priority
        return self._may_preempt and theirs > self.group.priority and not gang.is_leaving

    def gangs_on(self, rooms: Iterable[Room]) -> list[Running]:
        """Return the gangs that hold slots on agents (places, for a request without slots)."""
        gangs = {
            gang.request.id: gang
            for room in rooms
            for gang in self.survey.pool.on_agent(room.agent.id)
            if (gang.request.slots > 0) is (self.request.slots > 0)
        }
        return list(gangs.values())

    @cached_property
    def in_the_way(self) -> list[Request]:
        """The requests ahead that could use the agents where this one is nearest to fitting."""
        return [other for other in self._ahead() if self._could_use(other, self.nearest)]

    def _ahead(self) -> list[Request]:
        """Return the requests ahead, without those that max_slots of another experiment stops."""
        pool, found = self.survey.pool, []
        wanted: dict[int, int] = {}
        for other in self.survey.queue[: self.position]:
            most = pool.groups[other.group].max_slots
            total = wanted.get(other.group, pool.held(other.group)) + other.slots
            if most is None or total <= most or other.group == self.request.group:
                wanted[other.group] = total
                found.append(other)
        return found

    def _could_use(self, other: Request, rooms: Iterable[Room]) -> bool:
        shape = other.shape
        if other.slots == 0 or not self.survey.capacity.can_run(shape):
            return other.slots == self.request.slots == 0
        return any(self.claim(other, room) for room in rooms)

    def claim(self, other: Request, room: Room) -> int:
        """Return how many slots of an agent another request may take or keep at most."""
        if room.agent.id in other.blocked:
            return 0
        if self.survey.capacity.spans_agents(other.shape):
            return room.size
        return other.slots if other.slots <= room.size else 0


def situation_of(survey: Survey, request_id: str) -> Situation:
    """Return the pool as a waiting request meets it."""
    request = survey.pool.waiting[request_id]
    return Situation(survey, request, survey.pool.position(request_id))
