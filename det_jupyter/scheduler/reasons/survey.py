"""A pool at one moment: gathered once for all reasons that are given then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from det_jupyter.scheduler.deciding.order import Shape, shape_of
from det_jupyter.scheduler.deciding.pool import Pool
from det_jupyter.scheduler.model import AgentSlots, Request, Running
from det_jupyter.scheduler.reasons.facts import Facts, Withheld
from det_jupyter.scheduler.reasons.possible import Capacity
from det_jupyter.wire import Estimate

LOOK_AHEAD = 256  # of the queue; who stands further behind is told less


class Room(NamedTuple):
    """An agent as a waiting gang meets it.

    Args:
        agent: The agent.
        free: How many of its slots nobody holds.
        used: How many slots gangs hold here, those that are given out no more too.
        num_aux_gone: So many gangs without slots are there now, but are taken to be gone.
    """

    agent: AgentSlots
    free: int
    used: int
    num_aux_gone: int = 0

    @property
    def size(self) -> int:
        """How many slots may be given out, held or not."""
        return len(self.agent.slots)


class Place(NamedTuple):
    """One who waits, and its own group's ahead of it: how many, and the slots that they want."""

    request: Request
    turn: int
    slots_ahead: int


class Line:
    """Requests that may go first, in order; each question is worked out once."""

    def __init__(self, requests: Iterable[Request] = ()) -> None:
        self.requests = tuple(requests)

    @cached_property
    def shapes(self) -> Mapping[Shape, int]:
        """How many there are of each shape."""
        return Counter(shape_of(request) for request in self.requests)

    @cached_property
    def wanted(self) -> Mapping[int, int]:
        """How many slots each group's want together."""
        wanted: Counter[int] = Counter()
        for request in self.requests:
            wanted[request.group] += request.slots
        return wanted

    @cached_property
    def ids(self) -> frozenset[str]:
        """Who they are."""
        return frozenset(request.id for request in self.requests)

    @cached_property
    def by_group(self) -> Mapping[int, Sequence[Request]]:
        """Which of them are whose."""
        groups: dict[int, list[Request]] = {}
        for request in self.requests:
            groups.setdefault(request.group, []).append(request)
        return groups

    def extended(self, more: Sequence[Request]) -> Line:
        """Return the line with these at its end."""
        line, new = Line((*self.requests, *more)), Line(more)
        line.shapes = Counter(self.shapes)
        line.shapes.update(new.shapes)
        return line

    def without_groups(self, groups: Collection[int]) -> Line:
        """Return the line without those of some groups."""
        line = Line(other for other in self.requests if other.group not in groups)
        line.shapes = Counter(self.shapes)
        line.shapes.subtract(
            shape_of(other) for group in groups for other in self.by_group.get(group, ())
        )
        line.shapes = +line.shapes
        return line


@dataclass(frozen=True)
class Survey:
    """A pool at one moment; each question to its facts is asked once."""

    pool: Pool
    facts: Facts
    rooms: Mapping[str, Room]
    queue: Sequence[Request]  # the front of it, in order
    withheld: Mapping[str, Withheld]
    gone: Sequence[AgentSlots]
    capacity: Capacity
    _ends: dict[str, Estimate | None] = field(default_factory=dict)

    def end_of(self, request_id: str) -> Estimate | None:
        """Return when a running gang is expected to give its slots back.

        One that leaves does so long before its training would end: known is only its limit.
        """
        if request_id not in self._ends:
            is_leaving = self.pool.running[request_id].is_leaving
            known = self._limit_of if is_leaving else self.facts.end_of
            self._ends[request_id] = known(request_id)
        return self._ends[request_id]

    def _limit_of(self, request_id: str) -> Estimate | None:
        now, limit = self.facts.now, self.facts.leaves_by(request_id)
        if limit is None or limit <= now:
            return None
        basis = "from the time that it has to save and leave"
        return Estimate(at=limit, earliest=now, latest=limit, basis=basis)

    @cached_property
    def places(self) -> Mapping[int, Sequence[Place]]:
        """Return the front of the queue by group, each with what its group's ahead of it are."""
        places: dict[int, list[Place]] = {}
        slots: Counter[int] = Counter()
        for request in self.queue:
            mine = places.setdefault(request.group, [])
            mine.append(Place(request, len(mine), slots[request.group]))
            slots[request.group] += request.slots
        return places

    @cached_property
    def ranks(self) -> Mapping[str, int]:
        """Return how many are ahead of each at the front of the queue."""
        return {request.id: rank for rank, request in enumerate(self.queue)}

    @cached_property
    def by_turns(self) -> dict[str, Sequence[Request]]:
        """Who goes ahead of a request when all are at their first turn; filled as asked for."""
        return {}

    @property
    def is_whole_queue(self) -> bool:
        """Whether nobody waits behind the front."""
        return self.pool.num_waiting <= len(self.queue)


def survey(pool: Pool, facts: Facts) -> Survey:
    """Gather what reasons are made of; as long as the pool's version stays, so does this."""
    withheld, queue, gone = facts.withheld(), pool.waiting(LOOK_AHEAD), facts.gone()
    away = {agent.id for agent in gone}
    return Survey(
        pool=pool,
        facts=facts,
        rooms={
            agent_id: room_of(pool, agent) if agent_id in withheld else _usual_room(pool, agent)
            for agent_id, agent in pool.agents.items()
            if agent_id not in away
        },
        queue=queue,
        withheld=withheld,
        gone=gone,
        capacity=Capacity(pool.agents.values(), pool.rules),
    )


def _usual_room(pool: Pool, agent: AgentSlots) -> Room:
    free = len(pool.free(agent.id))
    return Room(agent, free, len(agent.slots) - free)


def room_of(pool: Pool, agent: AgentSlots) -> Room:
    """Return the agent with what is free on it, were its slots these."""
    gangs = pool.on_agent(agent.id) if agent.id in pool.agents else []
    taken = {slot for gang in gangs for slot in slots_on(gang, agent.id)}
    return Room(agent, sum(1 for slot in agent.slots if slot not in taken), len(taken))


def slots_on(gang: Running, agent_id: str) -> tuple[int, ...]:
    """Return the slots that a gang holds on an agent."""
    return tuple(s for part in gang.parts if part.agent_id == agent_id for s in part.slot_ids)
