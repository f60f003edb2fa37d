"""A busy pool for measurements, with a number of agents of eight slots and of waiting trials.

Sizes are those of the trace (see `scheduler_trace`), trials belong to experiments of 50, these
have one of three priorities and of three weights. After each event the pool decides. Events are a
new trial, the end of a gang, and a preempted gang that has left and queues again. As many trials
arrive as start, so that the length of the queue stays constant.
"""

from __future__ import annotations

import random
import time
from collections import deque
from dataclasses import replace

from det_jupyter.scheduler.model import (
    AgentSlots,
    Decisions,
    Group,
    Policy,
    PoolRules,
    Request,
)
from tests.scheduler_pool import Pool

POLICIES = {
    "priority": PoolRules(),
    "priority, preemption": PoolRules(preemption=True),
    "fair share": PoolRules(policy=Policy.FAIR_SHARE),
    "fair share, preemption": PoolRules(policy=Policy.FAIR_SHARE, preemption=True),
    "round robin": PoolRules(policy=Policy.ROUND_ROBIN),
}
SIZES = {1: 0.70, 2: 0.10, 4: 0.15, 8: 0.03, 16: 0.01, 32: 0.007, 64: 0.003}
TRIALS_PER_EXPERIMENT = 50
LEAVING_TAKES = 5  # events


class BusyPool:
    """A pool under load, and the time of each of its events."""

    def __init__(self, rules: PoolRules, num_agents: int, num_waiting: int) -> None:
        self.random = random.Random(1)
        self.pool = Pool(rules)
        self.times_s: list[float] = []
        self.num_starts = 0
        self.num_preemptions = 0
        self.newest = ""
        self._now = 0.0
        self._number = 0
        self._running: list[str] = []
        self._leaving: deque[tuple[int, str]] = deque()
        self._target = num_waiting
        for number in range(num_agents):
            agent = AgentSlots(id=f"agent-{number:04}", kind="cuda", slots=tuple(range(8)))
            self.pool.set_agent(agent)
        while self.pool.num_waiting < num_waiting + 4 * num_agents:
            self.pool.add(self._new())
        began = time.thread_time()
        self._note(self.pool.decide(self._now))
        self.first_pass_s = time.thread_time() - began
        while self.pool.num_waiting < num_waiting:
            self.pool.add(self._new())

    def _new(self) -> Request:
        self._number += 1
        self.newest = f"r{self._number}"
        group = self._number // TRIALS_PER_EXPERIMENT
        if group not in self.pool.groups:
            self.pool.set_group(
                Group(
                    id=group,
                    priority=self.random.choice((10, 42, 42, 42, 70)),
                    weight=self.random.choice((1.0, 1.0, 2.0, 4.0)),
                    max_slots=self.random.choice((None, None, None, 64)),
                    position=float(group),
                )
            )
        slots = self.random.choices([*SIZES], [*SIZES.values()])[0]
        return Request(id=self.newest, group=group, slots=slots, number=self._number)

    def _note(self, decisions: Decisions) -> None:
        self._running += (start.request_id for start in decisions.starts)
        self.num_starts += len(decisions.starts)
        self.num_preemptions += len(decisions.preemptions)
        due = len(self.times_s) + LEAVING_TAKES
        for gone in decisions.preemptions:
            self._running.remove(gone.request_id)
            self._leaving.append((due, gone.request_id))

    def step(self) -> None:
        """Carry out one event."""
        self._now += 1.0
        is_due = bool(self._leaving) and self._leaving[0][0] <= len(self.times_s)
        if is_due or not self._running:
            self._requeue(self._leaving.popleft()[1])
        elif self.pool.num_waiting < self._target:
            request = self._new()
            self._time(add=request)
        else:
            self._end_one()

    def end_many(self, num: int) -> float:
        """End gangs, and decide once; return the seconds per end."""
        num = min(num, len(self._running))
        for _ in range(num):
            self.pool.remove(self._running.pop())
        began = time.thread_time()
        self._note(self.pool.decide(self._now))
        return (time.thread_time() - began) / num

    def _end_one(self) -> None:
        place = self.random.randrange(len(self._running))
        self._running[place], self._running[-1] = self._running[-1], self._running[place]
        self._time(remove=self._running.pop())

    def _requeue(self, request_id: str) -> None:
        self._number += 1
        request = replace(self.pool.running[request_id].request, id=f"r{self._number}")
        self._time(remove=request_id, add=request)

    def _time(self, *, remove: str | None = None, add: Request | None = None) -> None:
        began = time.thread_time()
        if remove is not None:
            self.pool.remove(remove)
        if add is not None:
            self.pool.add(add)
        decisions = self.pool.decide(self._now)
        self.times_s.append(time.thread_time() - began)
        self._note(decisions)
