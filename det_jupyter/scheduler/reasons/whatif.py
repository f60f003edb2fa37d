"""What the scheduler would decide after a change: `decide` on a changed snapshot.

After each change the scheduler decides; gangs that are asked to leave queue again, and it decides
once more, as in the real pool. So a remedy that starts the trial here starts it there: there is no
second model of the scheduler.

One decision shows which of all waiting requests start, so it serves the questions of many trials;
and questions that begin with the same changes share the decisions after these.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from det_jupyter.scheduler.decide import decide
from det_jupyter.scheduler.model import AgentSlots, Group, Request, Running
from det_jupyter.scheduler.reasons.facts import Facts
from det_jupyter.scheduler.snapshot import Snapshot

_ROUNDS = 4  # rounds of preemptions


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChange:
    """A change of a pool at one moment.

    Args:
        ends: Gangs that end or leave; those that are resized go on.
        goes: Experiments that are paused or killed.
        groups: Experiments that are new or changed, as they are after the change.
        agents: Agents that are new or changed, as they are after the change.
        requests: Requests that are added to the queue.
    """

    ends: tuple[str, ...] = ()
    goes: tuple[int, ...] = ()
    groups: tuple[Group, ...] = ()
    agents: tuple[AgentSlots, ...] = ()
    requests: tuple[Request, ...] = ()


def one_by_one(gangs: Iterable[Running]) -> tuple[PoolChange, ...]:
    """Return changes in which these gangs end one after the other."""
    return tuple(PoolChange(ends=(gang.request.id,)) for gang in gangs)


class WhatIf:
    """A pool after a change, and the decisions that follow.

    Args:
        pool: The pool after the change, before the decisions.
        facts: The master's data on which trials queue when others end.

    Attributes:
        started: Requests that started after the change.
        asked: Gangs that were then asked to leave, by the request that needs their slots.
    """

    def __init__(self, pool: Snapshot, facts: Facts) -> None:
        self._pool = pool
        self._facts = facts
        self._then: dict[PoolChange, WhatIf] = {}
        self.started: set[str] = set()
        self.asked: dict[str, list[str]] = {}

    def after(self, *changes: PoolChange) -> WhatIf:
        """Return the pool after these changes, one after the other."""
        if not changes:
            return self
        first = changes[0]
        if first not in self._then:
            self._then[first] = WhatIf(self._changed(first), self._facts)
            self._then[first]._decide()
        return self._then[first].after(*changes[1:])

    def steps(self, request_id: str, changes: Iterable[PoolChange]) -> int | None:
        """Return after how many of these changes a request starts; None if it does not start."""
        found = self
        for num, change in enumerate(changes, 1):
            found = found.after(change)
            if request_id in found.started:
                return num
        return None

    def _changed(self, change: PoolChange) -> Snapshot:
        pool = self._pool
        gone = [request_id for group in change.goes for request_id in pool.of_group(group)]
        ends = [pool.running[name] for name in change.ends if name in pool.running]
        gangs = [gang for gang in ends if not gang.becomes]
        pool = pool.with_resized(gang.request.id for gang in ends if gang.becomes)
        comes = [one for gang in gangs if (one := self._comes_for(gang)) is not None]
        pool = pool.without(*gone, *(gang.request.id for gang in gangs))
        return replace(
            pool,
            agents={**pool.agents, **{agent.id: agent for agent in change.agents}},
            groups={**pool.groups, **{group.id: group for group in change.groups}},
            waiting={**pool.waiting, **{one.id: one for one in (*comes, *change.requests)}},
        )

    def _comes_for(self, gang: Running) -> Request | None:
        """Return the request that queues when a gang ends: the next trial's, its own, or None."""
        request = gang.request
        if gang.is_leaving:
            return request if self._facts.queues_again(request.id) else None
        if self._facts.may_ask_again(request.group):
            return replace(request, id=f"{request.id}+", number=request.number + 10**9)
        return None

    def _decide(self) -> None:
        for _ in range(_ROUNDS):
            decided = decide(self._pool, self._facts.now)
            pool = self._pool = self._pool.after(decided, self._facts.now)
            self.started.update(start.request_id for start in decided.starts)
            self._pool = pool = pool.with_resized(one.request_id for one in decided.resizes)
            if not decided.preemptions and not decided.resizes:
                break
            for gone in decided.preemptions:
                self.asked.setdefault(gone.for_request_id, []).append(gone.request_id)
            asked = [pool.running[gone.request_id].request for gone in decided.preemptions]
            left = pool.without(*(request.id for request in asked))
            again = {request.id: request for request in asked}
            self._pool = replace(left, waiting={**left.waiting, **again})
