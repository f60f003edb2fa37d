"""Agents that are kept for waiting requests in a pass (reservations), and promised ones.

A waiting request keeps the agents where it is nearest to fitting, and no request behind it starts
there before it has started. So the free slots there only grow: the request starts, however many
smaller ones start elsewhere, and none of these delays it. There are two ways to keep an agent:

    firmly   gangs that are leaving will make room: no other gang starts there
    loosely  no room is in sight: strictly less urgent gangs may use the free slots meanwhile;
             they are asked to leave once only they are in the way

One agent may make room for several requests in turn: `spare` counts the slots left over.

A promise is a firm reservation that lasts from one pass to the next. It is made when gangs are
asked to leave for a request, and ends when that request starts, waits no more, or the agents are
not enough for it any more. Without it the agents would be open to all as soon as they are free: a
preempted gang could come back as backfill, or an equal could start there, and more gangs would
have to leave for the same request. Precedence on promised agents:

    strictly more urgent requests  as if there were no promise, where they fit nowhere else
    equals further ahead           start there if they fit at once and nowhere else; no waiting
    the request with the promise   keeps them from the first request of its priority on
    all requests behind it         not at all

Fair share has no strictly more urgent requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from det_jupyter.scheduler.board import (
    Closed,
    Seats,
    SlotBoard,
    equal_wholes,
    in_sections,
)
from det_jupyter.scheduler.model import AgentPart, Policy, Request, Shape


class Reservations:
    """The agents kept in one pass.

    Args:
        board: The agents.
        promised: The waiting requests that have promises, in the order of the queue.
    """

    def __init__(self, board: SlotBoard, promised: Sequence[Request]) -> None:
        self.agents: dict[str, int | None] = {}  # the keeper's priority; None: firmly
        self.spare: dict[str, int] = {}
        self.by_request: dict[str, tuple[str, ...]] = {}
        self.behind: set[str] = set()  # kept only for requests with a promise further behind
        # Least priority of a request that keeps an agent with free slots.
        self.least_loose: int | None = None
        self._board = board
        self._to_keep = list(promised)  # promises of requests that the pass has not reached yet
        self._lent: set[str] = set()  # promised agents that more urgent requests keep loosely

    def keep_firmly(self, request: Request, agents: Sequence[str]) -> None:
        """Keep agents on which gangs that are leaving free enough slots."""
        for agent_id in agents:
            is_one = len(agents) == 1
            self.spare[agent_id] = self.coming(agent_id) - request.slots if is_one else 0
            self.agents[agent_id] = None
            self.behind.discard(agent_id)
        self.by_request[request.id] = tuple(agents)

    def keep_loosely(self, request: Request, agents: Sequence[str], priority: int) -> None:
        """Keep agents for a request that has too few free or coming slots so far."""
        for agent_id in agents:
            if agent_id in self.behind:
                self.behind.remove(agent_id)  # only a promise kept the agent from this request
                del self.spare[agent_id]
                continue
            self.agents[agent_id] = priority
            if self.least_loose is None and self._board.seats[agent_id].free:
                self.least_loose = priority
        self.by_request[request.id] = tuple(agents)

    def add_spare(self, gained: Mapping[str, int]) -> None:
        """Add slots that gangs will give back to the slots left over on kept agents.

        Called after gangs were asked to leave: requests further ahead start without these slots.

        Args:
            gained: The number of slots by agent.
        """
        for agent_id, slots in gained.items():
            if agent_id in self.spare:
                self.spare[agent_id] += slots

    def coming(self, agent_id: str) -> int:
        """Return how many slots remain for another request once leaving gangs have left."""
        if agent_id not in self.agents:
            return self._board.seats[agent_id].coming
        return self.spare.get(agent_id, 0)

    def is_barred(self, agent_id: str) -> bool:
        """Return whether slots that become free on an agent are all kept for other requests."""
        return agent_id in self.agents and agent_id not in self.spare

    def closed_to_all(self) -> Set[str]:
        """Return the agents that are used only by requests that fit nowhere else."""
        to_keep = {agent_id for one in self._to_keep for agent_id in one.promised}
        return self.agents.keys() | to_keep if to_keep else self.agents.keys()

    def closed_to(self, priority: int) -> set[str]:
        """Return the agents where a request of this priority may not start as backfill."""
        kept = self.agents.items()
        return {name for name, keeper in kept if keeper is None or keeper >= priority}

    def find_room(self, shape: Shape) -> list[str] | None:
        """Return the agents with enough free and coming slots, by the tightest fit; None if none.

        Agents promised to requests of less urgent levels are used only if there are no others.
        """
        found = self._find_room(shape, self.closed_to_all())
        return self._find_room(shape, self.agents) if found is None and self._to_keep else found

    def _find_room(self, shape: Shape, closed: Closed) -> list[str] | None:
        board = self._board
        if board.spans(shape):
            return _ids(board.find_wholes(shape, board.clear(shape, closed)))
        found = [
            (room, agent_id)
            for agent_id, room in self.spare.items()
            if room >= shape.slots and agent_id not in shape.blocked
        ]
        found += (
            (seats.coming, seats.id)
            for seats in board.open_to(shape, closed)
            if seats.coming >= shape.slots
        )
        return [min(found)[1]] if found else None

    def find_nearest(self, shape: Shape, above: int) -> list[str] | None:
        """Return the agents, not kept yet, that lack the fewest slots; None if no agents fit.

        Slots of gangs with a priority number above `above` count as free, because such gangs may
        be backfill. Otherwise each backfill that starts here would make another agent the nearest,
        and the request would alternate between agents that gangs were cleared from.
        """
        board = self._board
        open_seats = board.open_to(shape, self.agents.keys() - self.behind)
        levels = [(board.free_without(seats, above), seats) for seats in open_seats]
        if board.spans(shape):
            ways = equal_wholes(shape, in_sections(levels))
            best = max(ways, key=lambda found: sum(level for level, _ in found), default=None)
            wholes = board.find_wholes(shape, levels) if best is None else [s for _, s in best]
            return _ids(wholes)
        found = [(-level, seats.id) for level, seats in levels if seats.size >= shape.slots]
        return [min(found)[1]] if found else None

    def level(self, request: Request) -> int:
        """Return the priority of a request's group; 0 in pools without priorities.

        Requests of one level do not take promised agents from each other.
        """
        board = self._board
        has_order = board.rules.policy is Policy.PRIORITY
        return board.groups[request.group].priority if has_order else 0

    def keep_promised_up_to(self, level: int) -> None:
        """Keep the agents promised to the requests of this level and of more urgent ones."""
        while self._to_keep and self.level(self._to_keep[0]) <= level:
            request = self._to_keep.pop(0)
            if self._is_enough(request):
                self._keep_promised(request)

    def _is_enough(self, request: Request) -> bool:
        """Return whether the promised agents are still enough for the request.

        More urgent requests may keep some of them.
        """
        board, agents, shape = self._board, request.promised, request.shape
        if not board.rules.preemption or board.rules.policy is Policy.ROUND_ROBIN:
            return False
        if board.spans(shape):
            firm = {name for name, keeper in self.agents.items() if keeper is None}
            mine = [one for one in board.clear(shape, firm) if one[1].id in agents]
            wholes = board.find_wholes(shape, mine)
            return wholes is not None and len(wholes) == len(agents)
        if len(agents) > 1 or agents[0] not in board.seats or agents[0] in shape.blocked:
            return False
        return self._room_for_promised(agents[0]) >= request.slots

    def _room_for_promised(self, agent_id: str) -> int:
        """Return how many slots are or will be free for a request with a promise."""
        if self.agents.get(agent_id) is not None:
            # The request with the promise can preempt it again.
            return self._board.seats[agent_id].coming
        return self.coming(agent_id)

    def _keep_promised(self, request: Request) -> None:
        for agent_id in request.promised:
            room = self._room_for_promised(agent_id)
            if self.agents.get(agent_id) is not None:
                self._lent.add(agent_id)
            elif agent_id not in self.agents:
                self.behind.add(agent_id)
            self.agents[agent_id] = None
            self.spare[agent_id] = max(0, room - request.slots)
        self.by_request[request.id] = request.promised

    def close_promised(self, request: Request) -> None:
        """Close a request's promised agents to the requests behind it.

        Called when the pass has come to the request and it did not start.
        """
        self.behind.difference_update(request.promised)

    def find_promised_parts(self, request: Request) -> tuple[AgentPart, ...] | None:
        """Return a request's slots on its promised agents, or None if it does not fit yet."""
        seats = [self._board.seats[agent_id] for agent_id in request.promised]
        if len(seats) == 1:
            fits = len(seats[0].free) >= request.slots
            return (AgentPart(seats[0].id, seats[0].free[: request.slots]),) if fits else None
        return (
            tuple(AgentPart(s.id, s.free) for s in seats)
            if all(s.is_idle for s in seats)
            else None
        )

    def is_lent(self, request: Request) -> bool:
        """Return whether agents promised to this request are kept for more urgent requests."""
        return not self._lent.isdisjoint(request.promised)


def _ids(wholes: list[Seats] | None) -> list[str] | None:
    return None if wholes is None else [seats.id for seats in wholes]
