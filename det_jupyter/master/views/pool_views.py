"""Views of pools, slots and queues, made from the machine. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Literal

from det_jupyter.config.pools import PoolConfig
from det_jupyter.contract.messages import (
    AgentStatus,
    AllocationState,
    ClusterView,
    JobEntry,
    PoolStatus,
    QueueEntry,
    Reason,
    RunEntry,
    SlotStatus,
    SlotView,
)
from det_jupyter.contract.values.text import by_name
from det_jupyter.master.machine.machine import Machine
from det_jupyter.master.machine.model.allocations import Allocation
from det_jupyter.master.machine.model.state import Agent, Experiment, Trial
from det_jupyter.master.views.experiment_views import held_on
from det_jupyter.scheduler.board import SlotBoard

Why = Callable[[Trial], Reason]


def cluster_view(
    machine: Machine,
    why: Why,
    *,
    now: float,
    limit: int,
    experiment_id: int | None = None,
) -> ClusterView:
    """Return all pools with their queues, at most `limit` waiting trials of each.

    The first waiting trials of `experiment_id` are added, at any position in the queues.
    """
    entries = [
        entry
        for name in machine.state.pool_configs
        for entry in _queue_entries(machine, name, why, limit, experiment_id)
    ]
    return ClusterView(
        pools=pool_statuses(machine),
        holding=list(_holding_entries(machine)),
        queue=entries,
        num_waiting=machine.queue.num_waiting,
        at=now,
    )


def _queue_entries(
    machine: Machine, name: str, why: Why, limit: int, experiment_id: int | None
) -> Iterator[QueueEntry]:
    order = machine.queue.snapshot(name).order
    behind = (place for place in range(limit, len(order)) if order[place].group == experiment_id)
    for position in (*range(min(limit, len(order))), *islice(behind, limit)):
        trial = machine.state.trial_of(order[position].id)
        yield QueueEntry.built_from(
            _run_entry(machine, trial, name),
            weight=machine.state.experiments[trial.experiment_id].weight,
            position=position,
            reason=why(trial),
        )


def _holding_entries(machine: Machine) -> Iterator[RunEntry]:
    state = machine.state
    holding = {
        trial.id: trial
        for agent_id in state.agents
        for trial in machine.indexes.trials_on_agent(agent_id)
    }
    for trial in holding.values():
        assert trial.allocation is not None
        pool = state.pool_of(state.experiments[trial.experiment_id])
        if trial.allocation.agent_id:
            pool = state.pool_of_agent(trial.allocation.agent_id)
        yield _run_entry(machine, trial, pool)


def _run_entry(machine: Machine, trial: Trial, pool: str) -> RunEntry:
    experiment, allocation = machine.state.experiments[trial.experiment_id], trial.allocation
    assert allocation is not None
    return RunEntry(
        trial_id=trial.id,
        experiment_id=experiment.id,
        experiment_name=experiment.name,
        allocation_id=allocation.id,
        agent_ids=list(dict.fromkeys(allocation.agent_ids)),
        pool=pool,
        slots=experiment.slots_per_trial,
        priority=experiment.priority,
        queued_at=allocation.queued_at,
    )


def pool_statuses(machine: Machine) -> list[PoolStatus]:
    """Return all pools with their agents, their slots and the holders of the slots."""
    return [
        _pool_status(machine, name, config) for name, config in machine.state.pool_configs.items()
    ]


def _pool_status(machine: Machine, name: str, config: PoolConfig) -> PoolStatus:
    pool = machine.queue.snapshot(name)
    return PoolStatus(
        name=name,
        description=config.description,
        policy=config.scheduler.type,
        preemption=config.scheduler.preemption,
        default_priority=config.scheduler.default_priority,
        share_devices=config.share_devices,
        agents=[
            agent_status(machine, agent)
            for agent in sorted(machine.state.agents_of(name), key=lambda each: by_name(each.id))
        ],
        lost=[
            agent_status(machine, agent, is_lost=True)
            for agent in machine.state.lost_agents.values()
            if agent.is_remote and machine.state.pool_of_agent(agent.id) == name
        ],
        num_slots=sum(len(agent.slots) for agent in pool.agents.values()),
        num_free=sum(len(seats.free) for seats in SlotBoard(pool).seats.values()),
        num_waiting=len(pool.waiting),
    )


def agent_status(machine: Machine, agent: Agent, *, is_lost: bool = False) -> AgentStatus:
    """Return an agent with its slots and their holders."""
    held = list(held_on(agent.id, machine.indexes))
    holders = {slot.id: (trial, allocation, rank) for trial, allocation, rank, slot in held}
    pool = machine.state.pool_configs[machine.state.pool_of_agent(agent.id)]
    offered = [] if is_lost else agent.slots
    return AgentStatus.built_from(
        agent,
        pool=pool.pool_name,
        connected=not (agent.is_away or is_lost),
        slots=[
            _held_slot(machine, agent, slot, *holders[slot.id])
            if slot.id in holders
            else _other_slot(agent, slot, pool)
            for slot in offered
        ],
        num_aux=sum(slot.id < 0 for *_, slot in held),
        num_left_slots=0 if offered else len(agent.former.slots),
    )


def _held_slot(
    machine: Machine, agent: Agent, slot: SlotView, trial: Trial, allocation: Allocation, rank: int
) -> SlotStatus:
    experiment = machine.state.experiments[trial.experiment_id]
    return SlotStatus(
        slot=slot,
        state="leaving" if allocation.state is AllocationState.STOPPING else "used",
        is_draining=slot.id in agent.disabled,
        allocation_id=allocation.id,
        experiment_id=experiment.id,
        experiment_name=experiment.name,
        trial_id=trial.id,
        rank=rank,
        priority=experiment.priority,
        since=allocation.started_at,
        processes=agent.occupied.get(slot.id, []),
        lost=agent.lost.get(slot.id),
    )


def _other_slot(agent: Agent, slot: SlotView, pool: PoolConfig) -> SlotStatus:
    processes, lost = agent.occupied.get(slot.id, []), agent.lost.get(slot.id)
    state: Literal["free", "occupied", "lost", "disabled"] = "free"
    if slot.id in agent.disabled:
        state = "disabled"
    elif lost is not None:
        state = "lost"
    elif slot.id in agent.used_by_others(shares_devices=pool.share_devices):
        state = "occupied"
    return SlotStatus(slot=slot, state=state, processes=processes, lost=lost)


def job_entries(machine: Machine) -> list[JobEntry]:
    """Return the experiments that are not over, in the order of the queue."""
    living = machine.state.unfinished_experiments()
    living.sort(key=lambda e: (machine.state.pool_of(e), e.priority, e.position, e.id))
    entries: list[JobEntry] = []
    ahead: dict[str, int] = {}  # by pool: number of waiting jobs that are listed before
    for experiment in living:
        entry = _job_entry(machine, experiment, ahead)
        ahead[entry.pool] = ahead.get(entry.pool, 0) + (entry.num_waiting > 0)
        entries.append(entry)
    return entries


def _job_entry(machine: Machine, experiment: Experiment, ahead: dict[str, int]) -> JobEntry:
    name = machine.state.pool_of(experiment)
    trials = machine.indexes.unfinished_trials(experiment.id)
    num_running = sum(trial.holds_slots for trial in trials)
    num_waiting = sum(
        trial.allocation is not None and trial.allocation.state is AllocationState.QUEUED
        for trial in trials
    )
    slots = experiment.slots_per_trial
    has_order = machine.state.pool_configs[name].scheduler.type == "priority"
    return JobEntry.built_from(
        experiment,
        experiment_id=experiment.id,
        name=experiment.name,
        pool=name,
        slots_held=num_running * slots,
        slots_wanted=(num_running + num_waiting) * slots,
        num_running=num_running,
        num_waiting=num_waiting,
        jobs_ahead=ahead.get(name, 0) if has_order else None,
    )
