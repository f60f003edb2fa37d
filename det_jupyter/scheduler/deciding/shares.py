"""Preemption in fair share: gangs of the groups with the greatest share leave.

    level    slots that a group holds, without those of leaving gangs
    share    level / weight
    fairer   after the exchange the taker's share is at most the giver's

An exchange happens only where it is fairer. Because the taker then has no greater share than the
giver, the giver can never claim its slots back in the same way: exchanges come to an end.

The search goes through the groups from the greatest share downward and their gangs from the newest
on, `LOOKED_AT` gangs (or groups that may give nothing) at most, until the gangs found hold enough
slots on an agent. There the gangs of the group with the greatest share leave first; a gang that
turns out not to be needed stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from det_jupyter.scheduler.deciding.agents import ANY_PRIORITY, NO_PRIORITY, Ledger
from det_jupyter.scheduler.deciding.fitting import open_on
from det_jupyter.scheduler.deciding.keeping import Kept
from det_jupyter.scheduler.deciding.order import Shape
from det_jupyter.scheduler.deciding.victims import Way, cost_of
from det_jupyter.scheduler.model import Group, Running

LOOKED_AT = 64
ROUNDING = 1e-9  # slots


@dataclass(slots=True)
class Exchange:
    """A group that needs slots, beside groups that hold more than it.

    Args:
        ledger: Agents and the gangs on them.
        kept: Agents kept for requests ahead.
        groups: All groups.
        taker: The group that needs slots.
        shape: Of its request.
        now: UTC seconds.
        limit: The taker's share afterwards: its slots, those of this request and of its requests
            ahead of this one, per weight. No group gives below that, so that a preempted gang
            does not queue ahead of the taker.
    """

    ledger: Ledger
    kept: Kept
    groups: Mapping[int, Group]
    taker: int
    shape: Shape
    now: float
    limit: float
    given: dict[int, int] = field(default_factory=dict)

    def level(self, group: int) -> int:
        """Return the slots of a group, without those that it is to give."""
        return self.ledger.staying_by_group.get(group, 0) - self.given.get(group, 0)

    def most(self, group: int) -> float:
        """Return how many slots a group may give so that it is fairer afterwards."""
        if group == self.taker:
            return 0.0
        return self.level(group) - self.limit * self.groups[group].weight + ROUNDING

    def may_give(self, running: Running) -> bool:
        """Return whether it is fairer that this gang leaves."""
        return running.request.slots <= self.most(running.request.group)

    def find_way(self, *, spans: bool) -> Way | None:
        """Return the gangs that have to leave, or None if no way is fairer."""
        return self._clear_wholes() if spans else self._clear_one()

    def _able(self) -> Iterator[Running]:
        """Yield gangs that may leave: of the group with the greatest share first, newest first."""
        left, running = LOOKED_AT, self.ledger.running
        for negative_share, _, group in self.ledger.ranking:
            above = -negative_share - self.limit
            if above <= 0 or left <= 0:
                return
            most = above * self.groups[group].weight + ROUNDING
            if most < 1 or group == self.taker:
                left -= 1
                continue
            gangs = self.ledger.newest[group][:left]
            left -= len(gangs)
            for _, request_id in gangs:
                if running[request_id].request.slots <= most:
                    yield running[request_id]

    def _clear_one(self) -> Way | None:
        gains: dict[str, int] = {}
        for running in self._able():
            for part in running.parts:
                agent_id = part.agent_id
                gains[agent_id] = gains.get(agent_id, 0) + len(part.slot_ids)
                if not self._could_be(agent_id):
                    continue
                missing = self.shape.slots - self.kept.coming(agent_id)
                if gains[agent_id] >= missing:
                    victims = self._victims_on(agent_id, missing)
                    self.given = {}
                    if victims is not None:
                        return Way(tuple(sorted(victims)), (agent_id,))
        return None

    def _could_be(self, agent_id: str) -> bool:
        """Return whether the taker could start there at all."""
        agent = self.ledger.agents.get(agent_id)
        return (
            agent is not None
            and len(agent.slots) >= self.shape.slots
            and agent_id not in self.shape.blocked
            and not self.kept.is_barred(agent_id)
        )

    def _victims_on(self, agent_id: str, missing: int) -> dict[str, int] | None:
        """Return gangs that together hold the missing slots here, with their slots; or None."""
        usable = set(self.ledger.agents[agent_id].slots)
        gains = {
            running.request.id: len(usable.intersection(slots))
            for running, slots in self.ledger.stayers(agent_id, ANY_PRIORITY)
        }
        victims: dict[str, int] = {}
        while sum(victims.values()) < missing:
            able = [
                running
                for request_id, gain in gains.items()
                if gain and request_id not in victims
                for running in [self.ledger.running[request_id]]
                if self.may_give(running)
            ]
            if not able:
                return None
            chosen = min(able, key=self._order)
            group = chosen.request.group
            self.given[group] = self.given.get(group, 0) + chosen.request.slots
            victims[chosen.request.id] = gains[chosen.request.id]
        for request_id, gain in sorted(victims.items()):
            if sum(victims.values()) - gain >= missing:
                del victims[request_id]
        return victims

    def _order(self, running: Running) -> tuple[float, float, str]:
        share = self.level(running.request.group) / self.groups[running.request.group].weight
        return (-share, cost_of(running, self.now), running.request.id)

    def _clear_wholes(self) -> Way | None:
        """Clear agents one after the other until there are enough of one kind and size."""
        self.given = {}
        victims: set[str] = set()
        clear: dict[tuple[str, int], list[str]] = {}
        shelf = self.ledger.clear_shelf(NO_PRIORITY)
        for section in shelf.sections():
            clear[section] = [
                name for _, name in open_on(shelf, section, self.shape, self.kept.agents)
            ]
        for agent_id in self._agents_of_able():
            section = self.ledger.seats(agent_id).section
            is_closed = agent_id in self.kept.agents or agent_id in self.shape.blocked
            if is_closed or not section[1] or self.shape.slots % section[1]:
                continue
            if not self._clear_whole(agent_id, victims):
                continue
            names = clear.setdefault(section, [])
            names.append(agent_id)
            num = self.shape.slots // section[1]
            if len(names) >= num:
                return self._narrowed(names[-num:], victims)
        return None

    def _agents_of_able(self) -> list[str]:
        names = (part.agent_id for running in self._able() for part in running.parts)
        return [agent_id for agent_id in dict.fromkeys(names) if agent_id in self.ledger.agents]

    def _clear_whole(self, agent_id: str, victims: set[str]) -> bool:
        """Add all gangs that stay on an agent to the victims, or none of them."""
        new = [
            running
            for running, _ in self.ledger.stayers(agent_id, ANY_PRIORITY)
            if running.request.id not in victims
        ]
        for num, running in enumerate(new):
            if not self.may_give(running):
                for other in new[:num]:
                    self.given[other.request.group] -= other.request.slots
                return False
            group = running.request.group
            self.given[group] = self.given.get(group, 0) + running.request.slots
        victims.update(running.request.id for running in new)
        return True

    def _narrowed(self, agents: list[str], victims: set[str]) -> Way:
        needed = {
            running.request.id
            for agent_id in agents
            for running, _ in self.ledger.stayers(agent_id, ANY_PRIORITY)
        }
        return Way(tuple(sorted(victims & needed)), tuple(sorted(agents)))
