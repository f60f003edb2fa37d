"""The cost of computing why each of the first 256 trials waits, in one busy pool."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC
from typing import Any

from det_jupyter.contract.messages import Estimate
from det_jupyter.scheduler.model import AgentSlots
from det_jupyter.scheduler.reasons import PoolSurvey, Title, Withheld, why_waiting
from det_jupyter.scheduler.snapshot import Snapshot
from tests.benchmarks.scheduler_worlds import POLICIES, BusyPool
from tests.scheduler_pool import Pool

NUM_REASONS = 256


class BusyFacts:
    """Facts of a busy pool, in which the end of every third gang is known."""

    zone = UTC
    pool_name = "default"
    own_user = ""

    def __init__(self, pool: Pool) -> None:
        self._numbers = {name: place for place, name in enumerate(sorted(pool.running))}
        self.now = 1e9

    def trial_of(self, request_id: str) -> int:
        return self._numbers.get(request_id, 0)

    def title_of(self, experiment_id: int) -> Title:
        return Title(f"experiment{experiment_id}")

    def end_of(self, request_id: str) -> Estimate | None:
        number = self._numbers[request_id]
        if number % 3:
            return None
        seconds = 60.0 * (number % 50)
        return Estimate(
            at=self.now + seconds, earliest=self.now + seconds / 2, latest=self.now + seconds * 2,
            basis="by its progress",
        )  # fmt: skip

    def leaves_by(self, request_id: str) -> float | None:
        return self.now + 60

    def may_ask_again(self, experiment_id: int) -> bool:
        return experiment_id % 2 == 0

    def queues_again(self, request_id: str) -> bool:
        return True

    def withheld(self) -> Mapping[str, Withheld]:
        return {}

    def gone(self) -> list[AgentSlots]:
        return []

    def left_at(self, agent_id: str) -> float | None:
        return None

    def other_pools(self) -> Mapping[str, Snapshot]:
        return {}


def run_reasons(name: str, num_agents: int, num_waiting: int) -> dict[str, Any]:
    """Return the cost of the first reason alone, and per reason of the first 256."""
    pool = BusyPool(POLICIES[name], num_agents, num_waiting).pool
    facts = BusyFacts(pool)
    waiting = [request.id for request in pool.waiting(NUM_REASONS)]
    began = time.thread_time()
    why_waiting(PoolSurvey(pool.snapshot(), facts), waiting[0])
    first_s = time.thread_time() - began
    gathered, times = PoolSurvey(pool.snapshot(), facts), []
    for request_id in waiting:
        began = time.thread_time()
        why_waiting(gathered, request_id)
        times.append(time.thread_time() - began)
    return {
        "policy": name,
        "agents": num_agents,
        "waiting": num_waiting,
        "first_ms": first_s * 1e3,
        "median_ms": sorted(times)[len(times) // 2] * 1e3,
        "longest_ms": max(times) * 1e3,
        "all_ms": sum(times) * 1e3,
    }
