"""Agents that are kept for waiting requests (reservations).

A waiting request keeps the agents where it is nearest to fitting, and no request behind it starts
there before it has started. So the free slots there only grow: the request starts, however many
smaller ones start elsewhere, and none of these delays it. There are two ways to keep an agent:

    firmly   gangs that are leaving will make room: no other gang starts there
    loosely  no room is in sight: strictly less urgent gangs may use the free slots meanwhile;
             they are asked to leave once they are all that is in the way

One agent may make room for several requests in turn: `spare` counts the slots left over.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from itertools import islice

from det_jupyter.scheduler.deciding.agents import NO_PRIORITY, Ledger
from det_jupyter.scheduler.deciding.fitting import (
    Closed,
    best_on,
    equal_wholes,
    find_wholes,
    open_on,
)
from det_jupyter.scheduler.deciding.order import Shape
from det_jupyter.scheduler.deciding.shelves import Shelf
from det_jupyter.scheduler.model import PoolRules


class Kept:
    """The agents kept in one pass."""

    def __init__(self, ledger: Ledger, rules: PoolRules) -> None:
        self.agents: dict[str, int | None] = {}  # the keeper's priority; None: firmly
        self.spare: dict[str, int] = {}
        self.by_request: dict[str, tuple[str, ...]] = {}
        self.promised: set[str] = set()  # kept only for requests further behind (see promises.py)
        self.least_loose: int | None = None  # least priority that keeps an agent with free slots
        self._ledger = ledger
        self._rules = rules

    def keep_firmly(self, request_id: str, agents: Sequence[str], shape: Shape) -> None:
        """Keep agents where leaving gangs make room."""
        for agent_id in agents:
            self.spare[agent_id] = 0 if len(agents) > 1 else self.coming(agent_id) - shape.slots
            self.agents[agent_id] = None
            self.promised.discard(agent_id)
        self.by_request[request_id] = tuple(agents)

    def credit(self, gained: Mapping[str, int]) -> None:
        """Add slots of gangs that were just asked to leave: requests ahead do not need them."""
        for agent_id, slots in gained.items():
            if agent_id in self.spare:
                self.spare[agent_id] += slots

    def keep_loosely(self, request_id: str, agents: Sequence[str], priority: int) -> None:
        """Keep agents where no room is in sight yet."""
        for agent_id in agents:
            if agent_id in self.promised:
                self.promised.remove(agent_id)  # only a promise kept it from this request
                del self.spare[agent_id]
                continue
            self.agents[agent_id] = priority
            if self.least_loose is None and self._ledger.seats(agent_id).free:
                self.least_loose = priority
        self.by_request[request_id] = tuple(agents)

    def coming(self, agent_id: str) -> int:
        """Return the slots that one more request could have there once leaving gangs have left."""
        if agent_id not in self.agents:
            return self._ledger.seats(agent_id).coming
        return self.spare.get(agent_id, 0)

    def is_firm(self, agent_id: str) -> bool:
        """Return whether it is kept firmly."""
        return self.agents.get(agent_id, 0) is None

    def is_barred(self, agent_id: str) -> bool:
        """Return whether no further request can count on slots that come free there."""
        return agent_id in self.agents and agent_id not in self.spare

    def closed_to(self, priority: int) -> set[str]:
        """Return the agents where a request of this priority may not start as backfill."""
        kept = self.agents.items()
        return {name for name, keeper in kept if keeper is None or keeper >= priority}

    def find_room(self, shape: Shape, closed: Container[str], *, spans: bool) -> list[str] | None:
        """Return the agents where leaving gangs make room, the tightest fit; None: there are none.

        Args:
            shape: Of the request.
            closed: Agents that are no candidates, all kept ones included.
            spans: Whether it takes whole agents.
        """
        if spans:
            shelf = self._ledger.clear_shelf(NO_PRIORITY)
            return find_wholes(shelf, self._rules, shape, closed)
        agent_id = self._tightest(shape, self.spare, closed)
        return None if agent_id is None else [agent_id]

    def _tightest(self, shape: Shape, rooms: Mapping[str, int], closed: Closed) -> str | None:
        """Return the tightest fit among these rooms and the agents that are not closed."""
        shelf = self._ledger.reach_shelf(NO_PRIORITY)
        found = [
            (room, agent_id)
            for agent_id, room in rooms.items()
            if room >= shape.slots and agent_id not in shape.blocked
        ]
        for section in shelf.sections():
            best = best_on(shelf, section, shape, closed)
            found += [best] if best else []
        return min(found)[1] if found else None

    def find_nearest(self, shape: Shape, above: int, *, spans: bool) -> list[str] | None:
        """Return the agents, not kept yet, where the fewest slots are missing; None: no fit.

        Slots of gangs above this priority number count as free, because such gangs may be
        backfill. Otherwise each backfill that starts here would make another agent the nearest,
        and the request would alternate between agents that gangs were cleared from.
        """
        shelf = self._ledger.reach_shelf(above)
        closed = self.agents.keys() - self.promised if self.promised else self.agents
        if spans:
            return self._nearest_wholes(shape, shelf, closed)
        found: list[tuple[int, str]] = []
        for section in shelf.sections():
            if section[1] >= shape.slots:
                some = open_on(shelf, section, shape, closed)
                found += ((-level, agent_id) for level, agent_id in islice(some, 1))
        return [min(found)[1]] if found else None

    def _nearest_wholes(self, shape: Shape, shelf: Shelf, closed: Closed) -> list[str] | None:
        ways = equal_wholes(shelf, shape, closed)
        best = max(ways, key=lambda found: sum(level for level, _ in found), default=None)
        if best is None:
            return find_wholes(shelf, self._rules, shape, closed)
        return [agent_id for _, agent_id in best]
