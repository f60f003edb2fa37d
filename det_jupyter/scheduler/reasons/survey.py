"""A pool at one moment: gathered once for all reasons that are given then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from det_jupyter.scheduler.model import AgentSlots, Request, Running
from det_jupyter.scheduler.reasons.facts import Facts, Withheld
from det_jupyter.scheduler.reasons.possible import Capacity
from det_jupyter.scheduler.reasons.whatif import WhatIf
from det_jupyter.scheduler.snapshot import Snapshot
from det_jupyter.wire import Estimate

LOOK_AHEAD = 256  # of the queue; trials further behind get a shorter reason


class Room(NamedTuple):
    """An agent as a waiting gang meets it.

    Args:
        agent: The agent.
        free: Number of its slots that no gang holds.
        used: Number of slots that gangs hold here, those that are given out no more too.
    """

    agent: AgentSlots
    free: int
    used: int

    @property
    def size(self) -> int:
        """How many slots may be given out, held or not."""
        return len(self.agent.slots)


@dataclass(frozen=True)
class Survey:
    """A pool at one moment; each question to its facts is asked once."""

    pool: Snapshot
    facts: Facts
    whatif: WhatIf
    rooms: Mapping[str, Room]
    queue: Sequence[Request]  # the front of it, in order
    withheld: Mapping[str, Withheld]
    gone: Sequence[AgentSlots]
    capacity: Capacity
    _ends: dict[str, Estimate | None] = field(default_factory=dict)

    def end_of(self, gang: Running) -> Estimate | None:
        """Return when a running gang is expected to give its slots back.

        One that leaves does so long before its training would end: known is only its limit.
        """
        request_id = gang.request.id
        if request_id not in self._ends:
            known = self._limit_of if gang.is_leaving else self.facts.end_of
            self._ends[request_id] = known(request_id)
        return self._ends[request_id]

    def trials_of(self, gangs: Iterable[Running]) -> list[int]:
        """Return the numbers of the trials that gangs are runs of, ascending."""
        return sorted(self.facts.trial_of(gang.request.id) for gang in gangs)

    def _limit_of(self, request_id: str) -> Estimate | None:
        now, limit = self.facts.now, self.facts.leaves_by(request_id)
        if limit is None or limit <= now:
            return None
        basis = "from the time that it has to save and leave"
        return Estimate(at=limit, earliest=now, latest=limit, basis=basis)


def survey(pool: Snapshot, facts: Facts) -> Survey:
    """Gather what the reasons of a moment are made of.

    Args:
        pool: As it is after decisions were carried out.
        facts: What the pool does not have.
    """
    withheld, gone = facts.withheld(), facts.gone()
    away = {agent.id for agent in gone}
    return Survey(
        pool=pool,
        facts=facts,
        whatif=WhatIf(_front(pool), facts),
        rooms={
            agent_id: _room(pool, agent, is_whole=agent_id not in withheld)
            for agent_id, agent in pool.agents.items()
            if agent_id not in away
        },
        queue=pool.order[:LOOK_AHEAD],
        withheld=withheld,
        gone=gone,
        capacity=Capacity(pool.agents.values(), pool.rules),
    )


def _front(pool: Snapshot) -> Snapshot:
    """Return a pool with the front of its queue: what is behind has no part in the questions."""
    return replace(pool, waiting={one.id: one for one in pool.order[:LOOK_AHEAD]})


def _room(pool: Snapshot, agent: AgentSlots, *, is_whole: bool) -> Room:
    free = len(pool.free(agent.id))
    if is_whole:
        return Room(agent, free, len(agent.slots) - free)
    # Gangs may hold slots that are given out no more.
    used = sum(len(gang.slots_on(agent.id)) for gang in pool.on_agent(agent.id))
    return Room(agent, free, used)
