"""Input of the scheduler: trials that wait and trials that hold slots, derived from the state.

    trial                               in the queue
    QUEUED                              waits in its experiment's pool
    STARTING, RUNNING, STOPPING         holds slots in the pool of each of its agents
    anything else, or unmanaged         is not in the queue

A handler that changes a trial or an experiment touches it afterwards (turn.py), which updates the
look-ups; pools and agents are read from the state itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from det_jupyter.config.pools import PoolConfig
from det_jupyter.contract.messages import AllocationState, State
from det_jupyter.master.machine.model.allocations import Allocation
from det_jupyter.master.machine.model.state import Agent, Experiment, MachineState, Trial
from det_jupyter.scheduler.model import (
    AgentPart,
    AgentSlots,
    Fitting,
    Group,
    Policy,
    PoolRules,
    Request,
    Running,
    size_of,
)
from det_jupyter.scheduler.snapshot import Snapshot


class Queue:
    """The look-ups, and snapshots of pools made from them.

    Args:
        state: The state from which the look-ups are derived.

    Attributes:
        groups: The groups of all experiments that are not over, by number.
        version: Number of changes so far that decisions and reasons depend on.
        decided: The version after the last decisions.
        look_again_at: By pool: when elastic trials may grow though nothing else happens.
        stuck: By pool whose scheduler pass raises: the error.
    """

    def __init__(self, state: MachineState) -> None:
        self._state = state
        self.version = 0
        self.decided = -1
        self.stuck: dict[str, str] = {}
        self.look_again_at: dict[str, float] = {}
        self.rebuild()

    def rebuild(self) -> None:
        """Derive all look-ups from the state; called when pools or times of trials changed."""
        state = self._state
        self.groups: dict[int, Group] = {}
        self._pools: dict[int, str] = {}  # by experiment: the pool in which it queues
        self._waiting: dict[int, Request] = {}  # by trial that waits
        self._running: dict[int, Running] = {}
        self.stuck = {name: why for name, why in self.stuck.items() if name in state.pool_configs}
        for experiment in state.unfinished_experiments():
            self.update_experiment(experiment)
        for trial in state.trials.values():
            self.update_trial(trial)
        self.mark_changed()

    def update_experiment(self, experiment: Experiment) -> None:
        """Update the group of an experiment and the pool in which it queues."""
        before = (self.groups.pop(experiment.id, None), self._pools.pop(experiment.id, None))
        if not experiment.state.is_terminal:
            self.groups[experiment.id] = group_of(experiment)
            self._pools[experiment.id] = self._state.pool_of(experiment)
        if before != (self.groups.get(experiment.id), self._pools.get(experiment.id)):
            self.mark_changed()

    def update_trial(self, trial: Trial) -> None:
        """Update whether a trial waits, holds slots, or does neither."""
        before = self._waiting.pop(trial.id, None) or self._running.pop(trial.id, None)
        after = self._entry_of(trial)
        if isinstance(after, Running):
            self._running[trial.id] = after
        elif after is not None:
            self._waiting[trial.id] = after
        if before != after:
            self.mark_changed()

    def mark_changed(self) -> None:
        """Record that an agent, or anything else that decisions depend on, has changed."""
        self.version += 1
        self._snapshots: dict[str, Snapshot] = {}

    def _entry_of(self, trial: Trial) -> Request | Running | None:
        allocation = trial.allocation
        if allocation is None or allocation.state is AllocationState.ENDED:
            return None
        experiment = self._state.experiments[trial.experiment_id]
        if experiment.is_unmanaged:
            return None
        sizes = experiment.sizes.for_batch(trial.hparams)
        request = Request(
            id=allocation.id,
            group=experiment.id,
            slots=sizes.least,
            sizes=sizes if sizes.is_elastic else None,
            number=trial.id,
            is_single_agent=experiment.is_single_agent,
            blocked=frozenset(trial.avoids),
            promised=tuple(allocation.promised),
        )
        if allocation.state is AllocationState.QUEUED:
            return request
        assert allocation.started_at is not None
        parts = parts_of(allocation)
        if request.sizes:
            request = replace(request, slots=size_of(parts))
        goes_on = trial.state is State.ACTIVE and not allocation.has_failed_part
        becomes = next_parts_of(allocation) if goes_on else ()
        return Running(
            request=request,
            parts=parts,
            since=allocation.started_at,
            is_leaving=allocation.is_leaving and not becomes,
            is_backfill=allocation.is_backfill,
            becomes=becomes,
            # Code that does not check for requests would be killed at the deadline.
            trains_since=allocation.first_step_at if allocation.checked_at else None,
        )

    @property
    def num_waiting(self) -> int:
        """Number of trials that wait for slots, in all pools."""
        return len(self._waiting)

    def snapshot(self, name: str) -> Snapshot:
        """Return a pool as it is now."""
        if name not in self._snapshots:
            self._snapshots[name] = self._make_snapshot(name)
        return self._snapshots[name]

    def without_neighbours(self, name: str) -> Snapshot:
        """Return a pool as if no other master used the slots of its agents."""
        return self._make_snapshot(name, has_neighbours=False)

    def _make_snapshot(self, name: str, *, has_neighbours: bool = True) -> Snapshot:
        state = self._state
        config, agents = state.pool_configs[name], state.agents_of(name)
        waiting = [one for one in self._waiting.values() if self._pools[one.group] == name]
        running = [*self._gangs_of(name)]
        if are_apart(agents):
            waiting = [self._on_one_computer(request) for request in waiting]
            running = [
                replace(gang, request=self._on_one_computer(gang.request))
                if gang.request.sizes
                else gang
                for gang in running
            ]
        return Snapshot(
            rules=to_rules(config),
            agents={
                agent.id: agent_slots(
                    agent,
                    config,
                    cut_from=state.cut_from(agent.id),
                    has_neighbours=has_neighbours,
                )
                for agent in agents
            },
            groups=dict(self.groups),
            waiting={request.id: request for request in waiting},
            running={gang.request.id: gang for gang in running},
        )

    def _on_one_computer(self, request: Request) -> Request:
        """Return a request that may not span agents if its gang cannot span computers."""
        most = request.sizes.most if request.sizes else request.slots
        if request.is_single_agent or most < 2:
            return request
        experiment = self._state.experiments[request.group]
        return replace(request, is_single_agent=bool(experiment.why_one_computer))

    def _gangs_of(self, name: str) -> Iterable[Running]:
        """Yield the gangs in a pool; if a gang is in several pools, only its part in this one."""
        pool_of: dict[str, str] = {}
        for gang in self._running.values():
            here = []
            for part in gang.parts:
                if part.agent_id not in pool_of:
                    pool_of[part.agent_id] = self._state.pool_of_agent(part.agent_id)
                if pool_of[part.agent_id] == name:
                    here.append(part)
            if here:
                yield gang if len(here) == len(gang.parts) else replace(gang, parts=tuple(here))


def group_of(experiment: Experiment) -> Group:
    """Return the group of an experiment."""
    return Group(
        id=experiment.id,
        priority=experiment.priority,
        weight=experiment.weight,
        max_slots=experiment.max_slots,
        position=experiment.position,
    )


def are_apart(agents: Iterable[Agent]) -> bool:
    """Return whether a gang on several of these agents may span computers."""
    return any(agent.is_remote for agent in agents)


def to_rules(config: PoolConfig) -> PoolRules:
    """Return the rules of a pool."""
    scheduler = config.scheduler
    return PoolRules(
        policy=Policy(scheduler.type),
        preemption=scheduler.preemption,
        fitting=Fitting(scheduler.fitting_policy),
        allow_heterogeneous_fits=scheduler.allow_heterogeneous_fits,
        max_aux_per_agent=config.max_aux_containers_per_agent,
        reservation_depth=scheduler.reservation_depth,
    )


def parts_of(allocation: Allocation) -> tuple[AgentPart, ...]:
    """Return the slots that an allocation holds, by agent; ranks without slots are left out."""
    slots: dict[str, list[int]] = {}
    for agent_id, slot in zip(allocation.agent_ids, allocation.slots, strict=True):
        slots.setdefault(agent_id, []).extend([slot.id] if slot.id >= 0 else [])
    return tuple(AgentPart(agent_id, tuple(ids)) for agent_id, ids in slots.items())


def next_parts_of(allocation: Allocation) -> tuple[AgentPart, ...]:
    """Return the slots with which a gang that is resized goes on, by agent; () if it is not."""
    return tuple(AgentPart(agent_id, tuple(ids)) for agent_id, ids in allocation.becomes.items())


def agent_slots(
    agent: Agent,
    config: PoolConfig,
    *,
    is_whole: bool = False,
    cut_from: frozenset[str] = frozenset(),
    has_neighbours: bool = True,
) -> AgentSlots:
    """Return which slots of an agent may be given out in a pool.

    Args:
        agent: The agent.
        config: The pool.
        cut_from: Agents that it cannot reach.
        is_whole: Return all slots, as if the agent was connected and none was withheld.
        has_neighbours: Whether slots that other masters have claimed are left out.
    """
    barred: set[int] = set()
    if not is_whole:
        barred.update(agent.disabled)
        barred.update(agent.lost)
        barred.update(
            agent.used_by_others(
                shares_devices=config.share_devices, has_neighbours=has_neighbours
            )
        )
        if agent.is_away:
            barred.update(slot.id for slot in agent.slots)
    is_drained = not is_whole and len(agent.disabled) >= max(1, len(agent.slots))
    return AgentSlots(
        id=agent.id,
        kind=agent.slots[0].kind if agent.slots else "cpu",
        slots=tuple(sorted(slot.id for slot in agent.slots if slot.id not in barred)),
        is_open=is_whole or not (agent.is_away or is_drained),
        cut_from=cut_from,
        freed_at=dict(agent.freed_at),
    )
