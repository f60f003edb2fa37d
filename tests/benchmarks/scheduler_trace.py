"""A synthetic trace with the shape of a published workload, replayed under a policy.

From Microsoft's Philly cluster (M. Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters
for DNN Training Workloads", USENIX ATC 2019), as the generator of Gavel models it (D. Narayanan et
al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads", OSDI 2020):

    slots      1: 70 %, 2: 10 %, 4: 15 %, 8 and more: 5 %
    duration   10^x minutes; x uniform in 1.5 to 3 for four of five trials, in 3 to 4 for the fifth
    arrivals   Poisson

Assumed here, because it is not published in this form: the 5 % are 3 % of 8, 1 % of 16, 0.7 % of
32 and 0.3 % of 64 slots; size and duration are independent; 16 groups submit, one more often than
the next (the r-th with weight 1/r); every fifth group is urgent, every other fifth idle. A
preempted trial leaves after 30 s, keeps its progress, and needs 60 s more when it starts again.
The load is the requested slot time of all trials, divided by the slot time that exists while
trials arrive.

Measured from the arrival of the first fifth of the trials until that of the last one:

    utilisation   fraction of the slots that are held
    wait          time for which a trial was queued, including waits after preemptions
    fairness      Jain's index over the groups (1 at best) of: slots held by the group over time,
                  divided by its max-min fair share of them, given its demand at each moment
"""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean, quantiles
from typing import Any

from det_jupyter.scheduler.model import AgentSlots, Decisions, Group, PoolRules, Request
from tests.benchmarks.scheduler_worlds import SIZES
from tests.scheduler_pool import Pool

NUM_GROUPS = 16
NUM_AGENTS = 32
SLOTS_PER_AGENT = 8
LEAVING_S = 30.0
RESTART_S = 60.0
PRIORITIES = (10, 42, 42, 42, 70)


@dataclass(slots=True)
class Job:
    """One trial on its way through the pool."""

    group: int
    slots: int
    came_at: float
    left_s: float  # of training
    queued_at: float = 0.0
    started_at: float = 0.0
    waited_s: float = 0.0
    runs: int = 0


def make_trace(num_trials: int, *, load: float, seed: int = 1) -> list[Job]:
    """Return the trials in the order of arrival."""
    rng = random.Random(seed)
    sizes = rng.choices([*SIZES], [*SIZES.values()], k=num_trials)
    groups = rng.choices(
        range(NUM_GROUPS), [1 / (place + 1) for place in range(NUM_GROUPS)], k=num_trials
    )
    durations = [
        60 * 10 ** (rng.uniform(1.5, 3) if rng.random() < 0.8 else rng.uniform(3, 4))
        for _ in range(num_trials)
    ]
    work = sum(size * duration for size, duration in zip(sizes, durations, strict=True))
    span = work / (NUM_AGENTS * SLOTS_PER_AGENT * load)
    times = sorted(rng.uniform(0, span) for _ in range(num_trials))
    return [
        Job(group, slots, at, duration, queued_at=at)
        for group, slots, at, duration in zip(groups, sizes, times, durations, strict=True)
    ]


def fair_shares(wanted: Mapping[int, int], slots: int) -> dict[int, float]:
    """Return the max-min fair share of each group, by its demand."""
    shares: dict[int, float] = {}
    rest = float(slots)
    order = sorted(wanted, key=lambda group: wanted[group])
    for place, group in enumerate(order):
        shares[group] = min(float(wanted[group]), rest / (len(order) - place))
        rest -= shares[group]
    return shares


class Replay:
    """A trace in a pool."""

    def __init__(self, rules: PoolRules, trace: list[Job]) -> None:
        self.pool = Pool(rules)
        for number in range(NUM_AGENTS):
            slots = tuple(range(SLOTS_PER_AGENT))
            self.pool.set_agent(AgentSlots(id=f"agent-{number:02}", kind="cuda", slots=slots))
        for group in range(NUM_GROUPS):
            priority = PRIORITIES[group % len(PRIORITIES)]
            self.pool.set_group(Group(id=group, priority=priority, position=float(group)))
        self.jobs = [replace(job) for job in trace]
        self.num_preemptions = 0
        self.times_s: list[float] = []
        self._from_at = self.jobs[len(trace) // 5].came_at
        self._until_at = self.jobs[-1].came_at
        self._soon = [(job.came_at, number, "comes", 0) for number, job in enumerate(self.jobs)]
        self._left: set[tuple[int, int]] = set()
        self._now = 0.0
        self._wanted = dict.fromkeys(range(NUM_GROUPS), 0)
        self._held_s = dict.fromkeys(range(NUM_GROUPS), 0.0)  # slot-seconds
        self._fair_s = dict.fromkeys(range(NUM_GROUPS), 0.0)

    def run(self) -> dict[str, Any]:
        """Replay the trace to the end of all trials; return the results."""
        heapq.heapify(self._soon)
        while self._soon:
            at, number, what, run = heapq.heappop(self._soon)
            if what == "ends" and (number, run) in self._left:
                continue  # it was preempted before, so this end does not count
            self._count(at)
            self._now = at
            began = time.thread_time()
            if what == "comes":
                self._comes(number)
            else:
                self._goes(number, is_over=what == "ends")
            decisions = self.pool.decide(at)
            self.times_s.append(time.thread_time() - began)
            self._carry_out(decisions)
        return self._result()

    def _comes(self, number: int) -> None:
        job = self.jobs[number]
        job.queued_at = self._now
        self._wanted[job.group] += job.slots
        request = Request(id=f"{number}.{job.runs}", group=job.group, slots=job.slots)
        self.pool.add(replace(request, number=number))

    def _goes(self, number: int, *, is_over: bool) -> None:
        job = self.jobs[number]
        self.pool.remove(f"{number}.{job.runs - 1}")
        self._wanted[job.group] -= job.slots
        if not is_over:
            self._left.add((number, job.runs))
            job.left_s -= self._now - job.started_at - RESTART_S
            self._comes(number)

    def _carry_out(self, decisions: Decisions) -> None:
        for start in decisions.starts:
            number = int(start.request_id.split(".")[0])
            job = self.jobs[number]
            job.waited_s += self._now - job.queued_at
            job.started_at = self._now
            job.runs += 1
            heapq.heappush(self._soon, (self._now + job.left_s, number, "ends", job.runs))
        for gone in decisions.preemptions:
            number = int(gone.request_id.split(".")[0])
            job = self.jobs[number]
            if job.started_at + job.left_s > self._now + LEAVING_S:
                self.num_preemptions += 1
                heapq.heappush(self._soon, (self._now + LEAVING_S, number, "leaves", job.runs))

    def _count(self, until: float) -> None:
        """Add up the time since the last event."""
        seconds = min(until, self._until_at) - max(self._now, self._from_at)
        if seconds <= 0:
            return
        shares = fair_shares(self._wanted, NUM_AGENTS * SLOTS_PER_AGENT)
        for group, share in shares.items():
            self._held_s[group] += self.pool.held(group) * seconds
            self._fair_s[group] += share * seconds

    def _result(self) -> dict[str, Any]:
        jobs = [job for job in self.jobs if job.came_at >= self._from_at]
        urgent = [job for job in jobs if self.pool.groups[job.group].priority == PRIORITIES[0]]
        large = [job for job in jobs if job.slots > SLOTS_PER_AGENT]
        total = (self._until_at - self._from_at) * NUM_AGENTS * SLOTS_PER_AGENT
        got = [self._held_s[group] / fair for group, fair in self._fair_s.items() if fair]
        times = sorted(self.times_s)
        return {
            "trials": len(self.jobs),
            "utilisation": sum(self._held_s.values()) / total,
            "mean_wait_h": fmean(job.waited_s for job in jobs) / 3600,
            "p95_wait_h": quantiles((job.waited_s for job in jobs), n=20)[-1] / 3600,
            "urgent_wait_h": fmean(job.waited_s for job in urgent) / 3600,
            "large_wait_h": (fmean(job.waited_s for job in large) if large else 0.0) / 3600,
            "fairness": sum(got) ** 2 / (len(got) * sum(ratio**2 for ratio in got)),
            "preemptions": self.num_preemptions,
            "median_us": times[len(times) // 2] * 1e6,
        }


def replay(rules: PoolRules, num_trials: int, load: float) -> dict[str, Any]:
    """Return the results of a trace of this many trials under these rules."""
    return Replay(rules, make_trace(num_trials, load=load)).run()
