"""What the pool would decide if something was changed: asked of the pool itself, then taken back.

A question is a sequence of changes. After each of them the pool decides, those that it asks to
leave save their state and queue again, and it decides once more, as it does in earnest.
So a remedy that starts the trial here starts it there: there is no second model of the scheduler.

One answer says who of all that wait starts, so the questions of many trials are answered together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from det_jupyter.scheduler.deciding.pool import Pool
from det_jupyter.scheduler.model import AgentSlots, Group, Request, Running
from det_jupyter.scheduler.reasons.facts import Facts

_ROUNDS = 4  # of asking some to leave


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What changes at one moment.

    Args:
        ends: Gangs that end or leave.
        goes: Experiments that are paused or killed.
        groups: Experiments that are new, or that are changed so.
        agents: Agents that are new, or that offer other slots.
        requests: Who queues.
    """

    ends: tuple[str, ...] = ()
    goes: tuple[int, ...] = ()
    groups: tuple[Group, ...] = ()
    agents: tuple[AgentSlots, ...] = ()
    requests: tuple[Request, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the pool decides after changes.

    Args:
        started: Who starts, and after how many of the changes.
        asked: Gangs that are asked to leave, by the request that they are asked for.
    """

    started: dict[str, int] = field(default_factory=dict)
    asked: dict[str, list[str]] = field(default_factory=dict)


def ends(gangs: Iterable[Running]) -> Change:
    """Return the change that these gangs end at the same time."""
    return Change(ends=tuple(gang.request.id for gang in gangs))


def one_by_one(gangs: Iterable[Running]) -> list[Change]:
    """Return the changes that these gangs end one after the other."""
    return [ends([gang]) for gang in gangs]


class WhatIf:
    """Questions to a pool that stands still.

    Args:
        pool: After a pass.
        facts: Say whose experiments have more trials to come.
    """

    def __init__(self, pool: Pool, facts: Facts) -> None:
        self._pool = pool
        self._facts = facts
        self._known: dict[tuple[Change, ...], Outcome] = {}

    def after(self, *changes: Change) -> Outcome:
        """Return what the pool decides after these changes."""
        if changes not in self._known:
            self._known[changes] = self._play(changes)
        return self._known[changes]

    def _play(self, changes: Sequence[Change]) -> Outcome:
        outcome = Outcome()
        with self._pool.trying():
            for num, change in enumerate(changes, 1):
                self._make(change)
                self._decide(outcome, num)
        return outcome

    def _make(self, change: Change) -> None:
        pool = self._pool
        for group in change.groups:
            pool.set_group(group)
        for agent in change.agents:
            pool.set_agent(agent)
        for group_id in change.goes:
            for request_id in pool.of_group(group_id):
                pool.remove(request_id)
        for request_id in change.ends:
            if request_id in pool.running:
                self._end(pool.running[request_id])
        for request in change.requests:
            pool.add(request)

    def _end(self, gang: Running) -> None:
        """End a gang; another trial of its experiment may come for it, or itself once more."""
        request, comes = gang.request, None
        if gang.is_leaving:
            comes = request if self._facts.queues_again(request.id) else None
        elif self._facts.may_ask_again(request.group):
            comes = replace(request, id=f"{request.id}+", number=request.number + 10**9)
        self._pool.remove(request.id)
        if comes is not None:
            self._pool.add(comes)

    def _decide(self, outcome: Outcome, num: int) -> None:
        pool, now = self._pool, self._facts.now
        for _ in range(_ROUNDS):
            decided = pool.decide(now)
            for start in decided.starts:
                outcome.started.setdefault(start.request_id, num)
            if not decided.preemptions:
                return
            for gone in decided.preemptions:
                outcome.asked.setdefault(gone.for_request_id, []).append(gone.request_id)
                request = pool.running[gone.request_id].request
                pool.remove(request.id)
                pool.add(request)
