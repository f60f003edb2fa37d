"""The pool as one waiting gang meets it, and as it would be if somebody changed something.

A situation is a survey seen by one request: the rooms of agents, and who goes ahead of it.

`Situation.starts()` says that the request would certainly start in the next pass. It rests on
this: whoever is ahead and could use an agent at all either starts elsewhere or takes at most its
own slots there; if the agent has room for all of those *and* the request, all of them start.
Whoever could not use the agent neither takes nor keeps it. And whoever needs one agent takes or
keeps no more than one: of more agents than those ahead, one is left. Where `starts()` says no,
nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from det_jupyter.scheduler.deciding.order import Shape, shape_of
from det_jupyter.scheduler.deciding.pool import Pool
from det_jupyter.scheduler.model import Group, Policy, Request, Running
from det_jupyter.scheduler.reasons.possible import Capacity, fits_on_wholes, wholes_of
from det_jupyter.scheduler.reasons.survey import Line, Room, Survey
from det_jupyter.wire import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A pool seen by one waiting request, or as it would be after a change.

    Args:
        survey: What is.
        request: Who waits.
        rooms: The agents.
        capacity: What they could run if nobody were there.
        ahead: Who may go first, others' and its own experiment's; those that max_slots of another
            experiment holds back are not among them.
        is_complete: Whether `ahead` names all of those.
        allowance: How many more slots its experiment may hold; None: any number.
        looked_at: The only agents where it can fit, if that is known; None: any of them.
        barred: Agents where nobody can tell whether it fits.
        ended: Ids of gangs that are taken to be gone.
        released: The slots that these held, by group.
    """

    survey: Survey
    request: Request
    rooms: Mapping[str, Room]
    capacity: Capacity
    ahead: Line
    is_complete: bool
    allowance: int | None
    looked_at: tuple[Room, ...] | None = None
    barred: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()
    released: Mapping[int, int] = field(default_factory=dict)

    @property
    def group(self) -> Group:
        """The request's experiment."""
        return self.survey.pool.groups[self.request.group]

    @property
    def spans_agents(self) -> bool:
        """Whether the request gets whole agents, because none is large enough for it."""
        return self.capacity.spans_agents(shape_of(self.request))

    def end_of(self, gang: Running) -> Estimate | None:
        """Return when what a gang has is there for others, if anybody can tell."""
        return None if self.comes_again(gang) else self.survey.end_of(gang.request.id)

    def comes_again(self, gang: Running) -> bool:
        """Whether, when a gang has gone, its experiment may have another go ahead of this one."""
        group, facts = gang.request.group, self.survey.facts
        if group == self.request.group or not self._goes_ahead(group):
            return False
        return (
            facts.queues_again(gang.request.id) if gang.is_leaving else facts.may_ask_again(group)
        )

    def _goes_ahead(self, group_id: int) -> bool:
        pool = self.survey.pool
        if pool.rules.policy is not Policy.PRIORITY:
            return True
        other, own = pool.groups[group_id], pool.groups[self.request.group]
        return (other.priority, other.position, other.id) < (own.priority, own.position, own.id)

    def allowed(self) -> list[Room]:
        """Return the agents that the request may run on."""
        return [r for r in self.rooms.values() if r.agent.id not in self.request.blocked]

    def is_possible(self) -> bool:
        """Whether the pool could run the request if nobody else were there."""
        return self.capacity.can_run(shape_of(self.request))

    def fits_alone(self) -> bool:
        """Whether the request fits into what is free, were nobody ahead of it."""
        return replace(
            self, ahead=Line(), is_complete=True, allowance=None, looked_at=None
        ).starts()

    def starts(self) -> bool:
        """Whether the request certainly starts in the next pass."""
        need = self.request.slots
        own = self.ahead.wanted.get(self.request.group, 0)
        if not self.is_complete or (need and not self._may_hold(own + need)):
            return False
        if need == 0:
            num_ahead = self.num_places_ahead()
            return any(self.places_left(room) > num_ahead for room in self.allowed())
        rivals = self.rivals()
        if self.spans_agents:
            return self._gets_whole_agents(rivals)
        return self._gets_one_agent(rivals)

    def _gets_one_agent(self, rivals: Mapping[Shape, int]) -> bool:
        need, blocked = self.request.slots, self.request.blocked | self.barred
        looked_at = self.rooms.values() if self.looked_at is None else self.looked_at
        rooms = [r for r in looked_at if r.free >= need and r.agent.id not in blocked]
        if any(room.free >= need + self.claims(room, rivals) for room in rooms):
            return True
        if len(rooms) < 2 or any(self.capacity.spans_agents(shape) for shape in rivals):
            return False
        return len(rooms) > sum(rivals.values())  # each of them takes or keeps one agent at most

    def num_places_ahead(self) -> int:
        """Return how many without slots are ahead."""
        return sum(n for shape, n in self.ahead.shapes.items() if not shape.slots)

    def places_left(self, room: Room) -> int:
        """Return how many more gangs without slots an agent carries."""
        if not room.agent.is_open:
            return 0
        pool = self.survey.pool
        gangs = pool.on_agent(room.agent.id) if room.agent.id in pool.agents else []
        num = sum(1 for gang in gangs if not gang.request.slots)
        return pool.rules.max_aux_per_agent - num + room.num_aux_gone

    def _may_hold(self, slots: int) -> bool:
        return self.allowance is None or self.allowance >= slots

    def rivals(self) -> dict[Shape, int]:
        """Return how many of each shape are ahead and could use an agent at all."""
        return {
            shape: n
            for shape, n in self.ahead.shapes.items()
            if shape.slots and self.capacity.can_run(shape)
        }

    def claims(self, room: Room, rivals: Mapping[Shape, int]) -> int:
        """Return how many slots of an agent those ahead may take or keep at most."""
        return sum(n * self._claim(room, shape) for shape, n in rivals.items())

    def is_in_the_way(self, shape: Shape, rooms: Iterable[Room]) -> bool:
        """Whether somebody ahead of this shape could use one of these agents."""
        if shape.slots == 0 or not self.capacity.can_run(shape):
            return shape.slots == self.request.slots == 0
        return any(self._claim(room, shape) for room in rooms)

    def _claim(self, room: Room, shape: Shape) -> int:
        if room.agent.id in shape.blocked:
            return 0
        if self.capacity.spans_agents(shape):
            return room.size
        return shape.slots if shape.slots <= room.size else 0

    def _gets_whole_agents(self, rivals: Mapping[Shape, int]) -> bool:
        rules = self.survey.pool.rules
        idle = [room for room in self.allowed() if room.free == room.size > room.used == 0]
        if rivals and rules.allow_heterogeneous_fits:
            return False  # one agent more can spoil a mixed fit, so nobody can tell
        idle = [room for room in idle if not self.claims(room, rivals)]
        return fits_on_wholes(self.request.slots, wholes_of(room.agent for room in idle), rules)


def situation_of(survey: Survey, request_id: str) -> Situation:
    """Return the pool as a waiting request meets it."""
    pool = survey.pool
    position = pool.position(request_id)
    is_in_front = position < len(survey.queue)
    request = (survey.queue if is_in_front else pool.waiting(position + 1))[position]
    group = pool.groups[request.group]
    return Situation(
        survey=survey,
        request=request,
        rooms=survey.rooms,
        capacity=survey.capacity,
        ahead=Line(_who_may_go(pool, request, survey.queue[:position])),
        is_complete=position <= len(survey.queue),
        allowance=None if group.max_slots is None else group.max_slots - pool.held(group.id),
    )


def _who_may_go(pool: Pool, request: Request, ahead: Iterable[Request]) -> Iterator[Request]:
    """Yield those that can start or keep agents before the request, and all its own mates.

    What max_slots allows an experiment is used up by its first trials, whether they start or keep
    agents; that is certain only as long as all of them have one shape.
    """
    left: dict[int, tuple[float, Shape]] = {}
    for other in ahead:
        if other.group == request.group:
            if other.id != request.id:
                yield other
            continue
        shape = shape_of(other)
        most = pool.groups[other.group].max_slots
        if most is None or not other.slots:
            yield other
        elif other.group not in left or left[other.group][1] == shape:
            before = left[other.group][0] if other.group in left else most - pool.held(other.group)
            if before >= other.slots:
                left[other.group] = (before - other.slots, shape)
                yield other
        elif not pool.is_capped(other.id):
            yield other
