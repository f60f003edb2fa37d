"""Who leaves in fair share: gangs of those furthest above, as long as that is fairer.

    level    what a group holds without what leaves, and with what a pass has promised it
    share    level / weight
    fairer   after the exchange the taker's share is at most the giver's

Because the taker then stands no higher than the giver, the giver can never claim its slots back in
the same way: exchanges come to an end.

Groups are gone through from the greatest share downward, their gangs from the newest on, and the
agents of these gangs are looked at, `LOOKED_AT` at most. On an agent those leave first whose group
is furthest above; one that turns out not to be needed stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from det_jupyter.scheduler.agents import NOBODY, Ledger
from det_jupyter.scheduler.fitting import open_on
from det_jupyter.scheduler.keeping import Kept
from det_jupyter.scheduler.model import Group, Running
from det_jupyter.scheduler.order import Shape
from det_jupyter.scheduler.victims import LOOKED_AT, Way, cost_of


@dataclass(slots=True)
class Exchange:
    """One group that wants more, beside those that hold more.

    Args:
        ledger: Who holds what.
        kept: What is kept for those ahead.
        groups: All groups.
        promised: Slots that this pass has promised to groups already.
        taker: The group that wants more.
        shape: What it wants.
        now: UTC seconds.
    """

    ledger: Ledger
    kept: Kept
    groups: Mapping[int, Group]
    promised: Mapping[int, int]
    taker: int
    shape: Shape
    now: float
    given: dict[int, int] = field(default_factory=dict)

    def level(self, group: int) -> int:
        """Return what a group has, with what was promised and without what it is to give."""
        staying = self.ledger.staying(group) + self.promised.get(group, 0)
        return staying - self.given.get(group, 0)

    def share(self, group: int) -> float:
        """Return its level by its weight."""
        return self.level(group) / self.groups[group].weight

    @property
    def limit(self) -> float:
        """The share of the taker afterwards: no giver may come to stand below it."""
        return (self.level(self.taker) + self.shape.slots) / self.groups[self.taker].weight

    def may_give(self, running: Running) -> bool:
        """Return whether it is fairer that this gang leaves."""
        group = running.request.group
        left = self.level(group) - running.request.slots
        return group != self.taker and left / self.groups[group].weight >= self.limit

    def find_way(self, *, spans: bool) -> Way | None:
        """Return who has to leave, or None if there is no way that is fairer."""
        return self._clear_wholes() if spans else self._clear_one()

    def _agents_of_givers(self) -> Iterator[str]:
        """Yield agents: those of the group furthest above first, there of the newest gang."""
        seen: set[str] = set()
        limit = self.limit
        for share, _, group in tuple(self.ledger.ranking):
            if -share + self.promised.get(group, 0) / self.groups[group].weight <= limit:
                if not self.promised:
                    return
                continue
            for _, request_id in tuple(self.ledger.newest.get(group, ())):
                for part in self.ledger.running[request_id].parts:
                    if part.agent_id not in seen and part.agent_id in self.ledger.agents:
                        if len(seen) == LOOKED_AT:
                            return
                        seen.add(part.agent_id)
                        yield part.agent_id

    def _clear_one(self) -> Way | None:
        for agent_id in self._agents_of_givers():
            if agent_id in self.shape.blocked or self.kept.is_barred(agent_id):
                continue
            if len(self.ledger.agents[agent_id].slots) < self.shape.slots:
                continue
            missing = self.shape.slots - self.kept.coming(agent_id)
            self.given = {}
            victims = self._victims_on(agent_id, missing)
            if victims is not None:
                return Way(tuple(sorted(victims)), (agent_id,))
        return None

    def _victims_on(self, agent_id: str, missing: int) -> dict[str, int] | None:
        """Return gangs that together hold what is missing here, and how much each; or None."""
        usable = set(self.ledger.agents[agent_id].slots)
        gains = {
            running.request.id: len(usable.intersection(slots))
            for running, slots in self.ledger.stayers(agent_id, -1)
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
        return (-self.share(running.request.group), cost_of(running, self.now), running.request.id)

    def _clear_wholes(self) -> Way | None:
        """Clear agents one after the other until there are enough of one kind and size."""
        self.given = {}
        victims: set[str] = set()
        clear: dict[tuple[str, int], list[str]] = {}
        shelf = self.ledger.clear_shelf(NOBODY)
        for section in shelf.sections():
            clear[section] = [
                name for _, name in open_on(shelf, section, self.shape, self.kept.agents)
            ]
        for agent_id in self._agents_of_givers():
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

    def _clear_whole(self, agent_id: str, victims: set[str]) -> bool:
        """Let all who stay on an agent leave, or none of them."""
        new = [
            running
            for running, _ in self.ledger.stayers(agent_id, -1)
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
            for running, _ in self.ledger.stayers(agent_id, -1)
        }
        return Way(tuple(sorted(victims & needed)), tuple(agents))
