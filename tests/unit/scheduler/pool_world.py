"""Makers of pools for tests, and plain, slow versions of what the scheduler computes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations

from det_jupyter.scheduler.model import (
    AgentPart,
    AgentSlots,
    Decisions,
    Fitting,
    Group,
    Policy,
    PoolRules,
    Request,
    Running,
)
from tests.scheduler_pool import Pool

PRIORITY = PoolRules()
PREEMPTIVE = PoolRules(preemption=True)
FAIR = PoolRules(policy=Policy.FAIR_SHARE)
FAIR_PREEMPTIVE = PoolRules(policy=Policy.FAIR_SHARE, preemption=True)
ROUND_ROBIN = PoolRules(policy=Policy.ROUND_ROBIN)
WORST = PoolRules(fitting=Fitting.WORST)
MIXED = PoolRules(allow_heterogeneous_fits=True)


def make_pool(rules: PoolRules, agents: str, *groups: Group) -> Pool:
    """Return a pool; `agents` reads "a:8 b:4 c:8:cuda": names, slots and kinds."""
    pool = Pool(rules)
    for word in agents.split():
        name, slots, *kind = word.split(":")
        pool.set_agent(
            AgentSlots(id=name, kind=kind[0] if kind else "cpu", slots=tuple(range(int(slots))))
        )
    for group in groups or (Group(id=1),):
        pool.set_group(group)
    return pool


def reservations(pool: Pool) -> dict[str, tuple[str, ...]]:
    """Return the agents that the last decision kept, by request."""
    return {name: agents for name, agents in pool.kept.items() if pool.is_waiting(name)}


def is_capped(pool: Pool, request: Request) -> bool:
    """Return whether `max_slots` of its group forbids to start it now."""
    most = pool.groups[request.group].max_slots
    return (
        most is not None and request.slots > 0 and pool.held(request.group) + request.slots > most
    )


def ask(
    name: str, slots: int = 1, group: int = 1, *, blocked: str = "", single: bool = False
) -> Request:
    """Return a request; its number is the one in its name."""
    digits = name.strip("abcdefghijklmnopqrstuvwxyz")
    return Request(
        id=name,
        group=group,
        slots=slots,
        number=int(digits or 0),
        blocked=frozenset(blocked.split()),
        is_single_agent=single,
    )


def add(pool: Pool, *requests: Request) -> None:
    for request in requests:
        pool.add(request)


def hold(pool: Pool, request: Request, where: str, since: float = 0.0) -> None:
    """Let a gang hold slots; `where` reads "a:012 b:01"."""
    parts = [word.split(":") for word in where.split()]
    pool.hold(
        Running(
            request=request,
            parts=tuple(
                AgentPart(name, tuple(int(slot) for slot in slots)) for name, slots in parts
            ),
            since=since,
        )
    )


def started(decisions: Decisions) -> dict[str, str]:
    """Return who starts where, as `hold` reads it."""
    return {
        start.request_id: " ".join(
            f"{part.agent_id}:{''.join(map(str, part.slot_ids))}" for part in start.parts
        )
        for start in decisions.starts
    }


def preempted(decisions: Decisions) -> dict[str, str]:
    """Return who is asked to leave, and for whom."""
    return {gone.request_id: gone.for_request_id for gone in decisions.preemptions}


def promised(pool: Pool) -> dict[str, str]:
    """Return which agents are promised to whom."""
    return {one.id: " ".join(one.promised) for one in pool.waiting() if one.promised}


def leave_and_queue_again(pool: Pool, request_id: str, again: str) -> None:
    """Let one that was asked to leave do so; it waits under a new id."""
    request = replace(pool.running[request_id].request, id=again)
    pool.remove(request_id)
    pool.add(request)


def rebuilt(pool: Pool) -> Pool:
    """Return an equal pool that was filled in another order."""
    again = Pool(pool.rules)
    for group in reversed(list(pool.groups.values())):
        again.set_group(group)
    for request in sorted(pool.waiting(), key=lambda r: r.id, reverse=True):
        again.add(request)
    for running in sorted(pool.running.values(), key=lambda r: r.request.id, reverse=True):
        again.hold(running)
    for agent in reversed(list(pool.agents.values())):
        again.set_agent(agent)
    return again


def fits(pool: Pool, request: Request, without: Iterable[str] = ()) -> bool:
    """Return whether a request fits on what is free, or would be without some gangs."""
    gone = set(without)
    agents = [agent for agent in pool.agents.values() if agent.id not in request.blocked]
    if request.slots == 0:
        aux = {
            agent.id: sum(
                not running.request.slots and running.request.id not in gone
                for running in pool.on_agent(agent.id)
            )
            for agent in agents
            if agent.is_open
        }
        return any(number < pool.rules.max_aux_per_agent for number in aux.values())
    free = {agent.id: len(set(agent.slots) - held_on(pool, agent.id, gone)) for agent in agents}
    if any(slots >= request.slots for slots in free.values()):
        return True
    is_large = any(len(agent.slots) >= request.slots for agent in agents)
    if is_large or request.is_single_agent or request.slots == 1:
        return False
    idle: dict[str, list[int]] = {}
    for agent in agents:
        if not held_on(pool, agent.id, gone) and agent.slots:
            idle.setdefault(agent.kind, []).append(len(agent.slots))
    return any(_sums_up(sizes, request.slots, pool.rules) for sizes in idle.values())


def held_on(pool: Pool, agent_id: str, without: set[str]) -> set[int]:
    """Return the slots of an agent that are held, by others than these."""
    return {
        slot
        for running in pool.on_agent(agent_id)
        if running.request.id not in without
        for slot in running.slots_on(agent_id)
    }


def _sums_up(sizes: list[int], need: int, rules: PoolRules) -> bool:
    if any(need % size == 0 and sizes.count(size) * size >= need for size in sizes):
        return True
    if not rules.allow_heterogeneous_fits:
        return False
    for size in sorted(set(sizes), reverse=True):
        need -= min(need // size, sizes.count(size)) * size
    return need == 0


def least_cost(pool: Pool, request: Request, victims: list[Running], now: float) -> float | None:
    """Return the slot-seconds of the cheapest set of victims without which it fits."""
    costs = [
        sum(gang.request.slots * (now - gang.since) for gang in some)
        for num in range(len(victims) + 1)
        for some in combinations(victims, num)
        if fits(pool, request, [gang.request.id for gang in some])
    ]
    return min(costs, default=None)
