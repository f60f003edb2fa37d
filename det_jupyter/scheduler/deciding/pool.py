"""A pool: agents, waiting requests and running gangs. It takes every change and decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType

from det_jupyter.scheduler.deciding.agents import Ledger
from det_jupyter.scheduler.deciding.order import Queue
from det_jupyter.scheduler.deciding.passes import Pass
from det_jupyter.scheduler.deciding.undo import UndoLog
from det_jupyter.scheduler.model import (
    AgentSlots,
    Decisions,
    Group,
    Policy,
    PoolRules,
    Request,
    Running,
)


class Pool:
    """One pool. Deterministic: a pool rebuilt from the same facts decides the same.

    Args:
        rules: How it shares its slots.
    """

    def __init__(self, rules: PoolRules = PoolRules()) -> None:  # noqa: B008 # a frozen value
        self.rules = rules
        self.version = 0
        self._groups: dict[int, Group] = {}
        self._undo_log = UndoLog()
        self._ledger = Ledger(rules, self._groups, self._undo_log)
        self._queue = Queue(rules.policy, self._groups, self._undo_log)
        self._last_pass: Pass | None = None
        self.agents: Mapping[str, AgentSlots] = MappingProxyType(self._ledger.agents)
        self.groups: Mapping[int, Group] = MappingProxyType(self._groups)
        self.running: Mapping[str, Running] = MappingProxyType(self._ledger.running)

    def set_agent(self, agent: AgentSlots) -> None:
        """Add an agent, or update the slots that it offers."""
        old = self.agents.get(agent.id)
        if old == agent:
            return
        self._ledger.set_agent(agent)
        self._undo_log.note(
            partial(self.set_agent, old) if old else partial(self.remove_agent, agent.id)
        )
        self.version += 1

    def remove_agent(self, agent_id: str) -> None:
        """Remove an agent; gangs on it hold their slots until they are removed."""
        agent = self.agents[agent_id]
        self._ledger.remove_agent(agent_id)
        self._undo_log.note(partial(self.set_agent, agent))
        self.version += 1

    def set_group(self, group: Group) -> None:
        """Add a group, or update its priority, weight, cap or position."""
        old = self._groups.get(group.id)
        if old == group:
            return
        listed = self._ledger.forget_classes(group.id)
        self._queue.set_group(group)
        self._ledger.list_again(group.id, listed)
        self._undo_log.note(
            partial(self.set_group, old) if old else partial(self.remove_group, group.id)
        )
        self.version += 1

    def remove_group(self, group_id: int) -> None:
        """Remove a group that has no requests any more."""
        group = self._groups.pop(group_id)
        self._undo_log.note(partial(self.set_group, group))
        self.version += 1

    def add(self, request: Request) -> None:
        """Add a waiting request."""
        self._queue.add(request)
        self.version += 1

    def hold(self, running: Running) -> None:
        """Add a gang that holds slots already."""
        self._ledger.hold(running)
        self._count(running.request.group)
        self.version += 1

    def leave(self, request_id: str) -> None:
        """Note that a gang was asked to leave: it holds its slots until it is removed."""
        if not self.running[request_id].is_leaving:
            self._ledger.leave(request_id)
            self.version += 1

    def remove(self, request_id: str) -> None:
        """Remove a request, whether it waits or holds slots."""
        if request_id in self._queue.requests:
            self._queue.remove(request_id)
        else:
            group = self.running[request_id].request.group
            self._ledger.drop(request_id)
            self._count(group)
        self.version += 1

    @contextmanager
    def trying(self) -> Iterator[None]:
        """Undo at the end all changes made within.

        So the answer to "what if" is what the pool itself would decide. The cost grows with the
        number of changes, not with the size of the pool, as that of a copy would.
        """
        version, last_pass = self.version, self._last_pass
        try:
            with self._undo_log.trying():
                yield
        finally:
            self.version, self._last_pass = version, last_pass

    def _count(self, group: int) -> None:
        self._queue.set_held(group, self._ledger.held(group))

    def decide(self, now: float) -> Decisions:
        """Decide which requests start and which gangs have to leave, and apply it to the pool.

        Where a decision changes the facts of the next one, another pass follows, until one
        decides nothing. This terminates: every pass but the last starts a request, preempts a
        gang, or ends a promise; a preempted gang does not wait again before it has left, and a
        promise is only made by a preemption.
        """
        passes = [self._pass(now)]
        while self._is_worth_another(passes[-1]):
            passes.append(self._pass(now))
        promises = {one.request_id: one for decided in passes for one in decided.promises}
        decisions = Decisions(
            tuple(start for decided in passes for start in decided.starts),
            tuple(gone for decided in passes for gone in decided.preemptions),
            tuple(one for one in promises.values() if self.is_waiting(one.request_id)),
        )
        if decisions != Decisions():
            self.version += 1
        return decisions

    def _is_worth_another(self, decided: Decisions) -> bool:
        policy, preempts = self.rules.policy, self.rules.preemption
        starts_reorder = policy is Policy.ROUND_ROBIN or (policy is Policy.FAIR_SHARE and preempts)
        is_moved = bool(decided.starts) and starts_reorder
        is_cut = self._last_pass is not None and self._last_pass.is_cut
        return is_moved or bool(decided.preemptions) or is_cut

    def _pass(self, now: float) -> Decisions:
        self._last_pass = None
        taken = Pass(self.rules, self._groups, self._ledger, self._queue, now)
        self._last_pass = taken
        decisions = taken.run()
        for start in decisions.starts:
            group = self.running[start.request_id].request.group
            self._queue.remove(start.request_id)
            self._count(group)
        for promise in decisions.promises:
            if self.is_waiting(promise.request_id):
                self._queue.promise(promise.request_id, promise.agents)
        return decisions

    @property
    def looked_at(self) -> str:
        """The request that the last pass looked at last: the culprit, if it raised."""
        return self._last_pass.looking_at if self._last_pass is not None else ""

    def of_group(self, group_id: int) -> list[str]:
        """Return the ids of all requests of a group, running ones first."""
        held = [running.request.id for running in self._ledger.of_group(group_id)]
        return held + self._queue.of_group(group_id)

    @property
    def num_waiting(self) -> int:
        """Number of waiting requests."""
        return len(self._queue.requests)

    def free(self, agent_id: str) -> tuple[int, ...]:
        """Return the usable slots of an agent that no gang holds, ascending."""
        return self._ledger.seats(agent_id).free if agent_id in self.agents else ()

    def on_agent(self, agent_id: str) -> list[Running]:
        """Return the gangs on an agent, by id; the agent itself may be away."""
        return [self.running[name] for name in sorted(self._ledger.gangs_on(agent_id))]

    def held(self, group_id: int) -> int:
        """Return the slots that a group holds, those of gangs that leave included."""
        return self._ledger.held(group_id)

    def waiting(self, limit: int | None = None) -> list[Request]:
        """Return the waiting requests in order; a cap does not change a request's place."""
        return self._queue.first(limit)

    def is_waiting(self, request_id: str) -> bool:
        """Return whether a request waits."""
        return request_id in self._queue.requests

    def position(self, request_id: str) -> int:
        """Return the number of requests ahead of a waiting one."""
        return self._queue.position(request_id)
