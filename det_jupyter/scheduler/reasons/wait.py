"""A pool at one moment, prepared for reasons, and one waiting request in it.

A request waits for one of these causes:

    turn        requests ahead of it could use the agents on which it nearly fits
    slots       it fits nowhere, and no request ahead is in its way
    max_slots   its experiment holds as many slots as it may
    the others  it would not fit even into the idle pool: the fewest causes that all have to be
                remedied
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from itertools import combinations
from typing import Literal

from det_jupyter.contract.messages import Estimate
from det_jupyter.contract.values.text import short_time
from det_jupyter.scheduler.board import Seats, SlotBoard, equal_wholes, in_sections
from det_jupyter.scheduler.model import AgentSlots, Policy, Request, Running, Shape
from det_jupyter.scheduler.reasons.facts import Facts, Withheld
from det_jupyter.scheduler.reasons.sizes import could_run, values_that_fit
from det_jupyter.scheduler.reasons.whatif import PoolChange, WhatIf
from det_jupyter.scheduler.snapshot import Snapshot

LOOK_AHEAD = 256  # most requests that are examined; those further behind get a shorter reason
NEARBY = 8  # most agents that are examined
_LATELY_S = 86400.0  # how long a reason mentions an agent that left

Cause = Literal[
    "slots", "turn", "max_slots", "occupied", "disabled", "lost", "no_agent", "agent_gone",
    "impossible",
]  # fmt: skip
WITHHELD: tuple[Cause, ...] = (
    "disabled",
    "occupied",
    "lost",
    "agent_gone",
)  # quickest remedy first


class PoolSurvey:
    """A pool at one moment, for all reasons of that moment. Computed values are cached.

    Args:
        pool: The pool after decisions were carried out.
        facts: Data that the snapshot does not contain.

    Attributes:
        queue: The first `LOOK_AHEAD` waiting requests, in order.
        board: Its connected agents with their gangs.
        whatif: The pool with only the requests in `queue`, for what-ifs.
        withheld: Slots that its connected agents do not give out.
        gone: Its agents that are not connected, with the slots that they would offer.
    """

    def __init__(self, pool: Snapshot, facts: Facts) -> None:
        self.facts = facts
        self.gone = facts.gone()
        away = {agent.id for agent in self.gone}
        here = {name: agent for name, agent in pool.agents.items() if name not in away}
        self.pool = pool if len(here) == len(pool.agents) else replace(pool, agents=here)
        self.queue = self.pool.order[:LOOK_AHEAD]
        self.board = SlotBoard(self.pool)
        front = replace(self.pool, waiting={one.id: one for one in self.queue})
        self.whatif = WhatIf(front, facts)
        self.withheld = {name: one for name, one in facts.withheld().items() if name in here}
        self._can_run: dict[Shape, bool] = {}
        self._ends: dict[str, Estimate | None] = {}

    def can_run(self, shape: Shape) -> bool:
        """Return whether the pool could run a gang if the pool was idle."""
        if shape not in self._can_run:
            self._can_run[shape] = could_run(shape, self.pool.agents.values(), self.pool.rules)
        return self._can_run[shape]

    def end_of(self, gang: Running) -> Estimate | None:
        """Return when a running gang is expected to release its slots.

        For a leaving gang only the deadline is known.
        """
        request_id = gang.request.id
        if request_id not in self._ends:
            known = self._limit_of if gang.is_leaving or gang.becomes else self.facts.end_of
            self._ends[request_id] = known(request_id)
        return self._ends[request_id]

    def _limit_of(self, request_id: str) -> Estimate | None:
        now, limit = self.facts.now, self.facts.leaves_by(request_id)
        if limit is None or limit <= now:
            return None
        basis = "from the time that it has to save and leave"
        return Estimate(at=limit, earliest=now, latest=limit, basis=basis)

    def trials_of(self, gangs: Iterable[Running]) -> list[int]:
        """Return the numbers of the trials that gangs are runs of, ascending."""
        return sorted(self.facts.trial_of(gang.request.id) for gang in gangs)


class WaitingRequest:
    """One waiting request and its pool.

    Args:
        survey: The survey of the pool.
        request_id: The id of the request.

    Attributes:
        position: Number of requests ahead of it.
        allowed: The agents that it may run on.
        withheld: Withheld slots of the allowed agents, by agent.
        spans: Whether it gets whole agents, because no agent is large enough for it.
    """

    def __init__(self, survey: PoolSurvey, request_id: str) -> None:
        self.survey, self.facts, self.pool = survey, survey.facts, survey.pool
        self.request = self.pool.waiting[request_id]
        self.group = self.pool.groups[self.request.group]
        self.position = self.pool.position(request_id)
        self.shape = self.request.shape
        self.allowed = list(survey.board.open_to(self.shape, ()))
        self.spans = survey.board.spans(self.shape)
        self.withheld = {
            seats.id: survey.withheld[seats.id]
            for seats in self.allowed
            if seats.id in survey.withheld
        }

    def steps(self, *changes: PoolChange) -> int | None:
        """Return after how many of these changes the request starts; None if it does not start."""
        return self.survey.whatif.steps(self.request.id, changes)

    def starts(self, *changes: PoolChange) -> bool:
        """Return whether the request starts after these changes."""
        return self.steps(*changes) is not None

    @property
    def is_possible(self) -> bool:
        """Whether the pool could run the request if it was idle."""
        return self.survey.can_run(self.shape)

    def is_possible_with(self, agents: Iterable[AgentSlots]) -> bool:
        """Return whether the idle pool could run the request, with these agents added.

        An agent replaces the one of its name, if there is one.
        """
        together = {**self.pool.agents, **{agent.id: agent for agent in agents}}
        return could_run(self.shape, together.values(), self.pool.rules)

    @property
    def fits(self) -> bool:
        """Whether the request fits into the free slots, without regard to requests ahead."""
        return self.survey.board.find_parts(self.shape, ()) is not None

    @cached_property
    def nearest(self) -> list[Seats]:
        """The agents on which the request nearly fits, the nearest first."""
        need = self.request.slots
        if self.spans:
            sections = in_sections((-self.held(seats), seats) for seats in self.allowed)
            ways = list(equal_wholes(self.shape, sections))
            if ways:
                return [seats for _, seats in max(ways, key=lambda way: sum(n for n, _ in way))]
            return sorted(self.allowed, key=lambda seats: (self.held(seats), seats.id))
        large = [seats for seats in self.allowed if seats.size >= need]
        left = {seats.id: seats.size - self.held(seats) for seats in large}
        large.sort(key=lambda seats: (-min(need, left[seats.id]), -left[seats.id], seats.id))
        return large[:NEARBY]

    def held(self, seats: Seats) -> int:
        """Return how many slots on an agent are held by gangs that would not be preempted."""
        return sum(
            len(gang.slots_on(seats.id))
            for gang in seats.gangs.values()
            if not self.is_less_urgent(gang)
        )

    def is_less_urgent(self, gang: Running) -> bool:
        """Return whether the scheduler preempts a gang for this request once that makes room."""
        rules = self.pool.rules
        may_preempt = rules.preemption and rules.policy is Policy.PRIORITY
        if not may_preempt or not self.request.slots or gang.is_leaving:
            return False
        return self.survey.board.priority(gang) > self.group.priority

    def gangs_on(self, agents: Iterable[Seats]) -> list[Running]:
        """Return the gangs that hold slots on agents (places, for a request without slots)."""
        has_slots = self.request.slots > 0
        gangs = (gang for seats in agents for gang in seats.gangs.values())
        found = {gang.request.id: gang for gang in gangs if (gang.request.slots > 0) is has_slots}
        return list(found.values())

    def has_more_of(self, *groups: int) -> bool:
        """Return whether more trials of these experiments wait."""
        return any(other.group in groups for other in self.survey.queue)

    @property
    def is_complete(self) -> bool:
        """Whether all requests ahead are in `queue`."""
        return self.position <= len(self.survey.queue)

    @cached_property
    def in_the_way(self) -> list[Request]:
        """The requests ahead that could use the agents on which this one nearly fits."""
        return [other for other in self._ahead() if self._could_use(other)]

    def _ahead(self) -> Iterator[Request]:
        """Yield the requests ahead, except those that max_slots of another experiment blocks."""
        wanted: dict[int, int] = {}
        for other in self.survey.queue[: self.position]:
            most = self.pool.groups[other.group].max_slots
            total = wanted.get(other.group, self.pool.held(other.group)) + other.slots
            if most is None or total <= most or other.group == self.group.id:
                wanted[other.group] = total
                yield other

    def _could_use(self, other: Request) -> bool:
        if other.slots == 0 or not self.survey.can_run(other.shape):
            return other.slots == self.request.slots == 0
        return any(self.claim(other, seats) for seats in self.nearest)

    def claim(self, other: Request, seats: Seats) -> int:
        """Return the most slots of an agent that another request may take or keep."""
        if seats.id in other.blocked:
            return 0
        if self.survey.board.spans(other.shape):
            return seats.size
        return other.slots if other.slots <= seats.size else 0

    @cached_property
    def causes(self) -> tuple[Cause, ...]:
        """Why the request waits; if the pool cannot run it, everything that has to change."""
        most, need = self.group.max_slots, self.request.slots
        if not self.is_possible:
            return self._why_impossible()
        if need and most is not None and self.pool.held(self.group.id) + need > most:
            return ("max_slots",)
        return ("turn",) if self.in_the_way or not self.is_complete else ("slots",)

    def _why_impossible(self) -> tuple[Cause, ...]:
        if not self.pool.agents and not self.survey.gone:
            return ("no_agent",)
        for num in range(1, len(WITHHELD) + 1):
            for causes in combinations(WITHHELD, num):
                if self.is_possible_with(self.without_causes(causes)):
                    return causes
        return ("impossible",)

    def without_causes(self, causes: Collection[Cause]) -> list[AgentSlots]:
        """Return the agents that offer more slots once these causes are remedied."""
        agents = [
            offered(self.pool.agents[name], one, causes)
            for name, one in self.survey.withheld.items()
        ]
        return [*agents, *self.survey.gone] if "agent_gone" in causes else agents

    def left_at(self, agent: AgentSlots) -> str:
        """Return the time of day at which an agent of `gone` left; "" if there is none."""
        at = self.facts.left_at(agent.id)
        return "" if at is None else short_time(at, self.facts.now, self.facts.zone)

    @cached_property
    def missed(self) -> list[AgentSlots]:
        """Agents that left lately and with which the request would start; the latest first."""
        facts, gone = self.facts, self.survey.gone
        since = {agent.id: facts.left_at(agent.id) or 0.0 for agent in gone}
        lately = [
            agent for agent in gone if agent.slots and facts.now - since[agent.id] < _LATELY_S
        ]
        if not lately or not self.starts(PoolChange(agents=tuple(lately))):
            return []
        return sorted(lately, key=lambda agent: -since[agent.id])

    def all_agents(self) -> list[AgentSlots]:
        """Return every agent of the pool with all of its slots, also agents that have left."""
        whole = {agent.id: agent for agent in self.without_causes(WITHHELD)}
        return list({**self.pool.agents, **whole}.values())

    @property
    def sizes(self) -> list[int]:
        """Numbers of slots that the pool could run if nothing was withheld, ascending."""
        allowed = [agent for agent in self.all_agents() if agent.id not in self.shape.blocked]
        return values_that_fit(allowed, self.pool.rules, self.request.is_single_agent)

    @property
    def is_kept_away(self) -> bool:
        """Whether only agents that it must not run on (`blocked`) could run it."""
        freely = self.shape._replace(blocked=frozenset())
        return not self.is_possible and self.survey.can_run(freely)


def offered(agent: AgentSlots, withheld: Withheld, causes: Collection[Cause]) -> AgentSlots:
    """Return an agent as it would be once these causes, such as disabled slots, are remedied."""
    slots: dict[Cause, Collection[int]] = {
        "disabled": withheld.disabled,
        "occupied": withheld.occupied,
        "lost": withheld.lost,
    }
    left = {slot for cause, found in slots.items() if cause not in causes for slot in found}
    more = {slot for found in slots.values() for slot in found} - left
    is_open = agent.is_open or ("disabled" in causes and bool(withheld.disabled))
    return replace(agent, slots=tuple(sorted({*agent.slots, *more})), is_open=is_open)
