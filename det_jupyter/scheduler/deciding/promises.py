"""Agents promised to waiting requests for which gangs were asked to leave: state between passes.

A promise names agents. It is made when gangs are asked to leave for a request, and lasts until
that request starts, waits no more, or the agents are not enough for it any more. Without it the
agents would be open to all as soon as they are free: a preempted gang could come back as backfill,
or an equal could start there, and more gangs would have to leave for the same request.

Precedence on promised agents:

    strictly more urgent requests  as if there were no promise, where they fit nowhere else
    equals further ahead           start there if they fit at once and nowhere else; never wait
    the request with the promise   keeps them from the first request of its priority on
    all requests behind it         not at all

A promise ends when too little is left of it. Fair share has no strictly more urgent requests.
"""

from __future__ import annotations

from collections import deque

from det_jupyter.scheduler.deciding.agents import NO_PRIORITY, Ledger
from det_jupyter.scheduler.deciding.fitting import find_wholes, is_spanning
from det_jupyter.scheduler.deciding.keeping import Kept
from det_jupyter.scheduler.deciding.order import Key, Queue, shape_of
from det_jupyter.scheduler.model import Group, Part, Policy, PoolRules, Request


class Promises:
    """The promises of one pass.

    Args:
        rules: The pool's.
        groups: All groups.
        ledger: Agents and the gangs on them.
        queue: The waiting requests.
        kept: Agents kept in this pass; promised agents are added when their rank is reached.
    """

    def __init__(
        self, rules: PoolRules, groups: dict[int, Group], ledger: Ledger, queue: Queue, kept: Kept
    ) -> None:
        self.changes: dict[str, tuple[str, ...]] = {}  # made in this pass; (): ended
        self._rules = rules
        self._groups = groups
        self._ledger = ledger
        self._queue = queue
        self._kept = kept
        self._next = deque(sorted(queue.promised.values(), key=queue.key))  # not served yet
        self._later = self._next.copy()  # nothing kept yet: those whose rank was not reached
        self._lent: set[str] = set()  # agents that more urgent ones keep loosely

    def rank(self, request: Request) -> int:
        """Return the number that a request shares with its equals."""
        has_order = self._rules.policy is Policy.PRIORITY
        return self._groups[request.group].priority if has_order else 0

    def next_until(self, key: Key | None) -> Request | None:
        """Return the next request with a promise, if its place is not behind this one."""
        if not self._next or (key is not None and key < self._queue.key(self._next[0])):
            return None
        return self._next.popleft()

    def reach(self, rank: int) -> None:
        """Keep the agents promised to requests of this rank."""
        while self._later and self.rank(self._later[0]) <= rank:
            request = self._later.popleft()
            if self._is_enough(request):
                self._keep(request)

    def unkept(self) -> set[str]:
        """Return agents promised to less urgent requests than the walk has come to."""
        return {agent_id for one in self._later for agent_id in one.promised}

    def _is_enough(self, request: Request) -> bool:
        """Return whether its promised agents are still enough, after more urgent requests."""
        if not self._rules.preemption or self._rules.policy is Policy.ROUND_ROBIN:
            return False
        ledger, agents, shape = self._ledger, request.promised, shape_of(request)
        if is_spanning(ledger, shape):
            mine = {name for name in agents if not self._kept.is_firm(name)}
            clear = ledger.clear_shelf(NO_PRIORITY)
            wholes = find_wholes(clear, self._rules, shape, ledger.agents.keys() - mine)
            return wholes is not None and len(wholes) == len(agents)
        if len(agents) > 1 or agents[0] not in ledger.agents or agents[0] in shape.blocked:
            return False
        return self._room(agents[0]) >= request.slots

    def _room(self, agent_id: str) -> int:
        """Return the slots that are or will be free for a request of the rank reached."""
        if self._kept.agents.get(agent_id) is not None:
            return self._ledger.seats(agent_id).coming  # the keeper can preempt it again
        return self._kept.coming(agent_id)

    def _keep(self, request: Request) -> None:
        for agent_id in request.promised:
            room = self._room(agent_id)
            if self._kept.agents.get(agent_id) is not None:
                self._lent.add(agent_id)
            elif agent_id not in self._kept.agents:
                self._kept.promised.add(agent_id)
            self._kept.agents[agent_id] = None
            self._kept.spare[agent_id] = max(0, room - request.slots)
        self._kept.by_request[request.id] = request.promised

    def is_kept(self, request: Request) -> bool:
        """Return whether it still has its promised agents."""
        return request.id in self._kept.by_request

    def settle(self, request: Request) -> None:
        """Close its agents to requests behind it: its place is reached, and it waits."""
        self._kept.promised.difference_update(request.promised)

    def find_parts(self, request: Request) -> tuple[Part, ...] | None:
        """Return its slots on the promised agents, or None if it does not fit yet."""
        seats = {agent_id: self._ledger.seats(agent_id) for agent_id in request.promised}
        if len(seats) == 1:
            ((agent_id, only),) = seats.items()
            fits = len(only.free) >= request.slots
            return (Part(agent_id, only.free[: request.slots]),) if fits else None
        if not all(one.is_idle for one in seats.values()):
            return None
        return tuple(Part(agent_id, one.free) for agent_id, one in seats.items())

    def is_lent(self, request: Request) -> bool:
        """Return whether more urgent requests wait for its promised agents."""
        return not self._lent.isdisjoint(request.promised)
