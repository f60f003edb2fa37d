"""The agents of a pool during a pass of the scheduler, and where a gang fits.

    1. On one agent with enough free slots: the one that has the fewest of them (best fit) or of
       whose slots the greatest share is free (worst fit), then the lowest id.
    2. A gang for which no agent is large enough takes whole idle agents of one kind and one size
       that divides what it needs; the largest such size of which there are enough.
    3. Otherwise, where the pool allows it, idle agents of one kind and several sizes, the largest
       first; combinations with fewer of the large ones are not tried.

Of agents that cannot reach each other, those that are cut off from the most others are left out.
Kinds are never mixed. Blocked and closed agents are no candidates. A gang without slots goes to
any open agent that has a place left for one.

Prior art: the fits of Determined AI's resource pools. Two deviations: ties go to the lowest id,
not to a hash; and a gang that fits into one idle agent waits for one agent instead of taking
several.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from det_jupyter.scheduler.model import (
    AgentPart,
    AgentSlots,
    Fitting,
    PoolRules,
    Resize,
    Running,
    Shape,
)
from det_jupyter.scheduler.snapshot import Snapshot

NO_PRIORITY = 1000  # no gang has a greater priority number
ANY_PRIORITY = -1  # every gang has a greater priority number

Closed = Container[str]  # agents that are no candidates
Section = tuple[int, str]  # agents of one size and one kind: negative size, kind


@dataclass(slots=True)
class Seats:
    """One agent during a pass.

    Args:
        agent: The agent, with the slots that it offers.
        gangs: The gangs on it, by id.
        free: Slots that no gang holds, ascending.
        coming: Number of slots that are free once the leaving gangs have left.
    """

    agent: AgentSlots
    gangs: dict[str, Running] = field(default_factory=dict)
    free: tuple[int, ...] = ()
    coming: int = 0

    @property
    def id(self) -> str:
        """The agent's name."""
        return self.agent.id

    @property
    def size(self) -> int:
        """Number of slots that may be given out, held or not."""
        return len(self.agent.slots)

    @property
    def is_idle(self) -> bool:
        """Whether no gang holds any of its slots, including those that are not given out."""
        return not any(gang.request.slots for gang in self.gangs.values())

    def count(self) -> None:
        """Recompute `free` and `coming`, after its gangs have changed."""
        held: set[int] = set()
        leaving: set[int] = set()
        for gang in self.gangs.values():
            slots_here = gang.slots_on(self.agent.id)
            if gang.becomes:
                held.update(gang.kept_on(self.agent.id))
                leaving.update(set(slots_here) - held)
            else:
                (leaving if gang.is_leaving else held).update(slots_here)
        slots = sorted(self.agent.slots)
        self.free = tuple(s for s in slots if s not in held and s not in leaving)
        self.coming = sum(slot not in held for slot in slots)

    def freed_by(self, gang: Running) -> int:
        """Return how many more usable slots become free here when a gang ends."""
        own = gang.slots_on(self.agent.id) if gang.is_leaving else gang.kept_on(self.agent.id)
        return len(set(own).intersection(self.agent.slots))


class SlotBoard:
    """The agents of a snapshot, changed as a pass starts gangs and asks others to leave.

    Args:
        snapshot: The pool as it was when the pass began.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.rules = snapshot.rules
        self.groups = snapshot.groups
        self.running = dict(snapshot.running)
        self.seats = {agent.id: Seats(agent) for agent in snapshot.agents.values()}
        self._held: dict[int, int] = {}
        self._spans: dict[Shape, bool] = {}
        for request_id in sorted(self.running):
            self._seat(self.running[request_id])
        for seats in self.seats.values():
            seats.count()

    def _seat(self, gang: Running) -> list[Seats]:
        request = gang.request
        self._held[request.group] = self._held.get(request.group, 0) + gang.num_held
        here = [self.seats[name] for name in gang.agent_ids if name in self.seats]
        for seats in here:
            seats.gangs[request.id] = gang
        return here

    def held(self, group: int) -> int:
        """Return the number of slots that a group holds, including those of leaving gangs."""
        return self._held.get(group, 0)

    def kept_by(self, group: int) -> int:
        """Return the number of slots that a group does not give back."""
        mine = (gang for gang in self.running.values() if gang.request.group == group)
        return sum(gang.num_kept for gang in mine if not gang.is_leaving)

    def priority(self, gang: Running) -> int:
        """Return the priority of a gang's group."""
        return self.groups[gang.request.group].priority

    def hold(self, gang: Running) -> None:
        """Add a gang that holds slots from now on."""
        self.running[gang.request.id] = gang
        for seats in self._seat(gang):
            seats.count()

    def lift(self, request_id: str) -> Running:
        """Remove a gang, and return it."""
        gang = self.running.pop(request_id)
        self._held[gang.request.group] -= gang.num_held
        for seats in (self.seats[name] for name in gang.agent_ids if name in self.seats):
            del seats.gangs[request_id]
            seats.count()
        return gang

    def leave(self, request_id: str) -> dict[str, int]:
        """Mark a gang as leaving; return how many slots each agent gets back from it."""
        return self._change(request_id, is_leaving=True, becomes=())

    def resize(self, resize: Resize) -> dict[str, int]:
        """Hold other slots for an elastic gang; return how many more each agent gets back."""
        return self._change(resize.request_id, becomes=resize.parts)

    def _change(self, request_id: str, **changes: Any) -> dict[str, int]:
        gang = self.running[request_id]
        before = {name: self.seats[name].coming for name in gang.agent_ids if name in self.seats}
        self.hold(replace(self.lift(request_id), **changes))
        return {name: self.seats[name].coming - coming for name, coming in before.items()}

    def stayers(self, seats: Seats, priority: int) -> list[Running]:
        """Return the gangs on an agent that stay and have a greater priority number, by id."""
        return [
            gang
            for _, gang in sorted(seats.gangs.items())
            if gang.request.slots and not gang.is_leaving and self.priority(gang) > priority
        ]

    def free_without(self, seats: Seats, priority: int) -> int:
        """Return the number of free slots once gangs have left.

        These are the gangs that are leaving, and those with a greater priority number; with
        `NO_PRIORITY` only those that are leaving.
        """
        if priority == NO_PRIORITY:
            return seats.coming
        return seats.coming + sum(seats.freed_by(gang) for gang in self.stayers(seats, priority))

    def open_to(self, shape: Shape, closed: Closed) -> Iterator[Seats]:
        """Yield the agents that are candidates for a gang."""
        for agent_id, seats in self.seats.items():
            if agent_id not in closed and agent_id not in shape.blocked:
                yield seats

    def clear(
        self, shape: Shape, closed: Closed, priority: int = NO_PRIORITY
    ) -> list[tuple[int, Seats]]:
        """Return candidates that are idle once gangs have left, and their free slots.

        Args:
            shape: The shape of the gang that needs agents.
            closed: Agents that are no candidates.
            priority: Gangs with a greater priority number leave too.
        """
        return [
            (len(seats.free), seats)
            for seats in self.open_to(shape, closed)
            if seats.size > 0
            and all(
                self.priority(gang) > priority
                for gang in seats.gangs.values()
                if gang.kept_on(seats.id)
            )
        ]

    def spans(self, shape: Shape) -> bool:
        """Return whether no agent is large enough, so that the gang has to take several."""
        if shape not in self._spans:
            self._spans[shape] = (
                shape.slots > 1
                and not shape.is_single_agent
                and all(seats.size < shape.slots for seats in self.open_to(shape, ()))
            )
        return self._spans[shape]

    def find_parts(self, shape: Shape, closed: Closed) -> tuple[AgentPart, ...] | None:
        """Return which slots a gang gets now, or None if it does not fit."""
        if shape.slots == 0:
            return self._find_aux(shape)
        if not self.spans(shape):
            return self._find_one(shape, closed)
        idle = (s for s in self.open_to(shape, closed) if s.is_idle and s.free)
        wholes = self.find_wholes(shape, [(len(seats.free), seats) for seats in idle])
        return None if wholes is None else tuple(AgentPart(s.id, s.free) for s in wholes)

    def _find_aux(self, shape: Shape) -> tuple[AgentPart, ...] | None:
        """Return a place on the agent with the fewest places left (best fit) or the most."""
        sign = 1 if self.rules.fitting is Fitting.BEST else -1
        most = self.rules.max_aux_per_agent
        left = [
            (sign * (most - num), seats.id)
            for seats in self.open_to(shape, ())
            if seats.agent.is_open
            and (num := sum(not gang.request.slots for gang in seats.gangs.values())) < most
        ]
        return (AgentPart(min(left)[1], ()),) if left else None

    def _find_one(self, shape: Shape, closed: Closed) -> tuple[AgentPart, ...] | None:
        is_best = self.rules.fitting is Fitting.BEST
        found: list[tuple[Fraction | int, str]] = [
            (len(seats.free) if is_best else Fraction(-len(seats.free), seats.size), seats.id)
            for seats in self.open_to(shape, closed)
            if len(seats.free) >= shape.slots
        ]
        if not found:
            return None
        seats = self.seats[min(found)[1]]
        return (AgentPart(seats.id, seats.free[: shape.slots]),)

    def find_wholes(self, shape: Shape, levels: Iterable[tuple[int, Seats]]) -> list[Seats] | None:
        """Return agents that together are exactly as large as a gang.

        Args:
            shape: The shape of the gang.
            levels: Agents to choose from, each with a number; those with the highest numbers are
                taken.
        """
        return wholes_among(shape, in_sections(levels), self.rules)


Sections = dict[Section, list[tuple[int, Seats]]]


def in_sections(levels: Iterable[tuple[int, Seats]]) -> Sections:
    """Return agents by size and kind, the largest size first.

    Args:
        levels: Agents with a number each; within a section the highest number comes first.
    """
    found: Sections = {}
    for level, seats in levels:
        found.setdefault((-seats.size, seats.agent.kind), []).append((level, seats))
    for some in found.values():
        some.sort(key=lambda one: (-one[0], one[1].id))
        _leave_out_cut_off(some)
    return dict(sorted(found.items()))


def _leave_out_cut_off(some: list[tuple[int, Seats]]) -> None:
    """Remove the last agent with the most cuts, repeatedly, until all can reach each other.

    More agents than necessary may be removed: the least number is a minimum vertex cover.
    """
    while any(seats.agent.cut_from for _, seats in some):
        names = {seats.id for _, seats in some}
        cuts = [len(names & seats.agent.cut_from) for _, seats in some]
        if not (most := max(cuts)):
            return
        del some[len(cuts) - 1 - cuts[::-1].index(most)]


def reaches_all(seats: Seats, others: Iterable[Seats]) -> bool:
    """Return whether an agent can be in a gang with others."""
    return seats.agent.cut_from.isdisjoint(other.id for other in others)


def equal_wholes(shape: Shape, sections: Sections) -> Iterator[list[tuple[int, Seats]]]:
    """Yield, for each section that has enough agents, those that together are as large as a gang.

    Each agent comes with its number in `sections`.
    """
    for (negative_size, _), some in sections.items():
        if negative_size and shape.slots % negative_size == 0:
            num = shape.slots // -negative_size
            if len(some) >= num:
                yield some[:num]


def wholes_among(shape: Shape, sections: Sections, rules: PoolRules) -> list[Seats] | None:
    """Return agents of these sections that together are exactly as large as a gang."""
    for found in equal_wholes(shape, sections):
        return [seats for _, seats in found]
    return _mixed_wholes(shape, sections) if rules.allow_heterogeneous_fits else None


def _mixed_wholes(shape: Shape, sections: Sections) -> list[Seats] | None:
    for kind in sorted({kind for _, kind in sections}):
        rest, found = shape.slots, list[Seats]()
        for (negative_size, of), some in sections.items():
            if of == kind and negative_size:
                fitting = [seats for _, seats in some if reaches_all(seats, found)]
                taken = fitting[: rest // -negative_size]
                found += taken
                rest += len(taken) * negative_size
        if not rest:
            return found
    return None
