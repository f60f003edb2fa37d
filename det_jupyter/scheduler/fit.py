"""Placing gangs on slots.

    1. Requests are looked at in order: priority (lower first), then time of asking, then number.
    2. A gang gets all its slots on one agent, or none. Of the agents where it fits, the one with
       the fewest free slots is taken (best fit: large holes stay large), then the lowest id.
    3. A request that does not fit does not stop later ones that do.
    4. Nobody is preempted here.

It follows that the first request in order never fits into what is left free.
The snapshot is never changed: planning costs nothing and can be shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """An experiment that holds slots of an agent, by these trials: for explanations."""

    trial_ids: tuple[int, ...]
    experiment_id: int
    experiment_name: str
    slots: int
    is_leaving: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSlots:
    """One agent: how many slots it has, which are free, who holds the rest."""

    id: str
    kind: str
    total: int
    free: tuple[int, ...]  # slot ids, ascending
    holders: tuple[Holder, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A gang that wants slots."""

    id: str
    slots: int
    priority: int
    queued_at: float
    number: int = 0  # of its trial: the older one goes first

    @property
    def order(self) -> tuple[int, float, int, str]:
        """Its place in the queue."""
        return (self.priority, self.queued_at, self.number, self.id)


@dataclass(frozen=True, slots=True)
class Placement:
    """A decision: this gang gets these slots, in rank order."""

    request_id: str
    agent_id: str
    slot_ids: tuple[int, ...]


def schedule(agents: Iterable[AgentSlots], queue: Sequence[Request]) -> list[Placement]:
    """Return the placements that can be made now, in the order of the queue."""
    free = {agent.id: agent.free for agent in agents}
    placements = []
    for request in sorted(queue, key=lambda r: r.order):
        fitting = [
            (len(slots), name) for name, slots in free.items() if len(slots) >= request.slots
        ]
        if fitting:
            _, agent_id = min(fitting)
            taken, free[agent_id] = (
                free[agent_id][: request.slots],
                free[agent_id][request.slots :],
            )
            placements.append(Placement(request.id, agent_id, taken))
    return placements
