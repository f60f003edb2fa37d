"""What would be decided if something was changed: `decide` on a changed snapshot.

A question is a sequence of changes. After each of them the pool decides, those that it asks to
leave save their state and queue again, and it decides once more, as it does in earnest.
So a remedy that starts the trial here starts it there: there is no second model of the scheduler.

One answer says who of all that wait starts, so the questions of many trials are answered together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from det_jupyter.scheduler.decide import decide
from det_jupyter.scheduler.model import AgentSlots, Group, Request, Running
from det_jupyter.scheduler.reasons.facts import Facts
from det_jupyter.scheduler.snapshot import Snapshot

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
    """Questions to a pool.

    Args:
        pool: As it is after decisions were carried out.
        facts: Say whose experiments have more trials to come.
    """

    def __init__(self, pool: Snapshot, facts: Facts) -> None:
        self._pool = pool
        self._facts = facts
        self._answers: dict[tuple[Change, ...], Outcome] = {}

    def after(self, *changes: Change) -> Outcome:
        """Return what the pool decides after these changes."""
        if changes not in self._answers:
            self._answers[changes] = self._play(changes)
        return self._answers[changes]

    def _play(self, changes: Sequence[Change]) -> Outcome:
        outcome, pool = Outcome(), self._pool
        for num, change in enumerate(changes, 1):
            pool = self._decided(self._changed(pool, change), outcome, num)
        return outcome

    def _changed(self, pool: Snapshot, change: Change) -> Snapshot:
        gone = [request_id for group in change.goes for request_id in pool.of_group(group)]
        gangs = [pool.running[name] for name in change.ends if name in pool.running]
        comes = [one for gang in gangs if (one := self._comes_for(gang)) is not None]
        pool = pool.without(*gone, *(gang.request.id for gang in gangs))
        return replace(
            pool,
            agents={**pool.agents, **{agent.id: agent for agent in change.agents}},
            groups={**pool.groups, **{group.id: group for group in change.groups}},
            waiting={**pool.waiting, **{one.id: one for one in (*comes, *change.requests)}},
        )

    def _comes_for(self, gang: Running) -> Request | None:
        """Return who queues when a gang ends: another trial of its experiment, or itself again."""
        request = gang.request
        if gang.is_leaving:
            return request if self._facts.queues_again(request.id) else None
        if self._facts.may_ask_again(request.group):
            return replace(request, id=f"{request.id}+", number=request.number + 10**9)
        return None

    def _decided(self, pool: Snapshot, outcome: Outcome, num: int) -> Snapshot:
        for _ in range(_ROUNDS):
            decided = decide(pool, self._facts.now)
            pool = pool.after(decided, self._facts.now)
            for start in decided.starts:
                outcome.started.setdefault(start.request_id, num)
            if not decided.preemptions:
                break
            for gone in decided.preemptions:
                outcome.asked.setdefault(gone.for_request_id, []).append(gone.request_id)
            asked = [pool.running[gone.request_id].request for gone in decided.preemptions]
            pool = pool.without(*(request.id for request in asked))
            again = {request.id: request for request in asked}
            pool = replace(pool, waiting={**pool.waiting, **again})
        return pool
