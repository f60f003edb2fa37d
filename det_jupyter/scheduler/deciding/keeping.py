"""Agents that are kept for those who wait.

One who waits keeps the agents where it is nearest to fitting, and until it has started nobody
behind it starts there. So what is free there only grows: it starts, however many smaller ones pass
by elsewhere, and none of these delays it. There are two ways to keep an agent:

    firmly   what leaves there, or was asked to, will make room: nobody else comes in
    loosely  there is no room in sight: strictly less urgent gangs, which it can have asked to
             leave once they are all that is in its way, may use what is free meanwhile

One agent may make room for several in turn: `spare` is what will be left of it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from itertools import islice

from det_jupyter.scheduler.deciding.agents import NOBODY, Ledger
from det_jupyter.scheduler.deciding.fitting import Closed, best_on, find_wholes, open_on
from det_jupyter.scheduler.deciding.order import Shape
from det_jupyter.scheduler.deciding.shelves import Shelf
from det_jupyter.scheduler.model import PoolRules


class Kept:
    """What is kept, in one pass."""

    def __init__(self, ledger: Ledger, rules: PoolRules) -> None:
        self.agents: dict[str, int | None] = {}  # the keeper's priority; None: firmly
        self.spare: dict[str, int] = {}
        self.by_request: dict[str, tuple[str, ...]] = {}
        self.promised: set[str] = set()  # kept only for some further behind (see promises.py)
        self.least_loose: int | None = None  # the most urgent keeper of one that has free slots
        self._ledger = ledger
        self._rules = rules

    def keep_firmly(self, request_id: str, agents: Sequence[str], shape: Shape) -> None:
        """Keep agents where there will be room."""
        for agent_id in agents:
            self.spare[agent_id] = 0 if len(agents) > 1 else self.coming(agent_id) - shape.slots
            self.agents[agent_id] = None
            self.promised.discard(agent_id)
        self.by_request[request_id] = tuple(agents)

    def credit(self, gained: Mapping[str, int]) -> None:
        """Count slots that those ahead do not need: gangs there were asked to leave just now."""
        for agent_id, slots in gained.items():
            if agent_id in self.spare:
                self.spare[agent_id] += slots

    def keep_loosely(self, request_id: str, agents: Sequence[str], priority: int) -> None:
        """Keep agents where no room is in sight."""
        for agent_id in agents:
            if agent_id in self.promised:
                self.promised.remove(agent_id)  # it is next here: nobody else but for a promise
                del self.spare[agent_id]
                continue
            self.agents[agent_id] = priority
            if self.least_loose is None and self._ledger.seats(agent_id).free:
                self.least_loose = priority
        self.by_request[request_id] = tuple(agents)

    def coming(self, agent_id: str) -> int:
        """Return the slots that one more could have there once those who leave have left."""
        if agent_id not in self.agents:
            return self._ledger.seats(agent_id).coming
        return self.spare.get(agent_id, 0)

    def is_barred(self, agent_id: str) -> bool:
        """Return whether nobody else can count on anything that comes free there."""
        return agent_id in self.agents and agent_id not in self.spare

    def closed_to(self, priority: int) -> set[str]:
        """Return the agents where one of this priority may not stand in for those ahead."""
        return {
            agent_id
            for agent_id, keeper in self.agents.items()
            if keeper is None or keeper >= priority
        }

    def find_room(self, shape: Shape, closed: Container[str], *, spans: bool) -> list[str] | None:
        """Return where what leaves will make room, or None: the tightest such place.

        Args:
            shape: What is wanted.
            closed: Agents that are none, all that are kept included.
            spans: Whether it takes whole agents.
        """
        if spans:
            shelf = self._ledger.clear_shelf(NOBODY)
            return find_wholes(shelf, self._rules, shape, closed)
        agent_id = self._tightest(shape, self.spare, closed)
        return None if agent_id is None else [agent_id]

    def _tightest(self, shape: Shape, rooms: Mapping[str, int], closed: Closed) -> str | None:
        """Return the tightest of these rooms or of the agents that are not closed."""
        shelf = self._ledger.reach_shelf(NOBODY)
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
        """Return the agents, not kept yet, where least is missing; None: no such could do.

        Slots of gangs above this priority number are not missing: those are gangs that may stand
        in. If they counted, another agent would be nearer as soon as one had started here, and
        who waits would go back and forth between agents that others had cleared for themselves.
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
        best: tuple[int, list[str]] | None = None
        for section in shelf.sections():
            size = section[1]
            if size and shape.slots % size == 0:
                num = shape.slots // size
                found = list(islice(open_on(shelf, section, shape, closed), num))
                coming = sum(level for level, _ in found)
                if len(found) == num and (best is None or coming > best[0]):
                    best = (coming, [agent_id for _, agent_id in found])
        if best is None and self._rules.allow_heterogeneous_fits:
            return find_wholes(shelf, self._rules, shape, closed)
        return best[1] if best else None
