"""A mutable pool, for tests and benchmarks of the scheduler."""

from __future__ import annotations

from dataclasses import replace

from det_jupyter.scheduler.board import SlotBoard
from det_jupyter.scheduler.decide import decide
from det_jupyter.scheduler.model import (
    AgentSlots,
    Decisions,
    Group,
    PoolRules,
    Request,
    Running,
)
from det_jupyter.scheduler.snapshot import Snapshot


class Pool:
    """The parts of a snapshot, which may be changed; `decide` applies the decisions to them."""

    def __init__(self, rules: PoolRules | None = None) -> None:
        self.rules = rules or PoolRules()
        self.agents: dict[str, AgentSlots] = {}
        self.groups: dict[int, Group] = {}
        self.requests: dict[str, Request] = {}
        self.running: dict[str, Running] = {}
        self.kept: dict[str, tuple[str, ...]] = {}  # agents kept by the last decision
        self._snapshot: Snapshot | None = None

    def snapshot(self) -> Snapshot:
        """Return the present snapshot."""
        if self._snapshot is None:
            self._snapshot = Snapshot(
                rules=self.rules,
                agents=dict(self.agents),
                groups=dict(self.groups),
                waiting=dict(self.requests),
                running=dict(self.running),
            )
        return self._snapshot

    def decide(self, now: float) -> Decisions:
        """Decide, and apply the decisions."""
        decided = decide(self.snapshot(), now)
        after = self.snapshot().after(decided, now)
        self.requests, self.running = dict(after.waiting), dict(after.running)
        self.kept = dict(decided.kept)
        self._snapshot = after
        return decided

    def set_agent(self, agent: AgentSlots) -> None:
        self.agents[agent.id] = agent
        self._snapshot = None

    def remove_agent(self, agent_id: str) -> None:
        del self.agents[agent_id]
        self._snapshot = None

    def set_group(self, group: Group) -> None:
        self.groups[group.id] = group
        self._snapshot = None

    def remove_group(self, group_id: int) -> None:
        del self.groups[group_id]
        self._snapshot = None

    def add(self, request: Request) -> None:
        self.requests[request.id] = request
        self._snapshot = None

    def hold(self, running: Running) -> None:
        self.running[running.request.id] = running
        self._snapshot = None

    def leave(self, request_id: str) -> None:
        self.running[request_id] = replace(self.running[request_id], is_leaving=True)
        self._snapshot = None

    def go_on(self, request_id: str, now: float) -> None:
        """Let a gang that is resized go on with its next slots."""
        self.running[request_id] = replace(self.running[request_id].resized(), since=now)
        self._snapshot = None

    def remove(self, request_id: str) -> None:
        if self.requests.pop(request_id, None) is None:
            del self.running[request_id]
        self._snapshot = None

    # questions

    @property
    def num_waiting(self) -> int:
        return len(self.requests)

    def is_waiting(self, request_id: str) -> bool:
        return request_id in self.requests

    def waiting(self, limit: int | None = None) -> list[Request]:
        return self.snapshot().order[:limit]

    def position(self, request_id: str) -> int:
        return self.snapshot().position(request_id)

    def on_agent(self, agent_id: str) -> list[Running]:
        """Return the gangs on an agent, by id, even if the agent is not connected."""
        gangs = [self.running[name] for name in sorted(self.running)]
        return [gang for gang in gangs if agent_id in gang.agent_ids]

    def free(self, agent_id: str) -> tuple[int, ...]:
        seats = SlotBoard(self.snapshot()).seats
        return seats[agent_id].free if agent_id in seats else ()

    def held(self, group_id: int) -> int:
        return self.snapshot().held(group_id)
