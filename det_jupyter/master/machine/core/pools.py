"""The live pools: the scheduler's view of the machine's state, updated as it changes.

They follow from the state, and are made anew from it after a restart or when they are redefined: a
pool made anew decides as the live one does (det_jupyter/scheduler). A handler that changes a
trial, an experiment or an agent touches it afterwards (turn.py), which updates the pools.

    trial                               in its pool
    QUEUED                              waits, in the pool that its experiment asks for
    STARTING, RUNNING, STOPPING         holds slots, in the pool of each of its agents
    anything else                       is not there
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from det_jupyter.config.pools import DEFAULT_POOL, PoolConfig, parse_pools
from det_jupyter.master.machine.core.state import (
    Agent,
    Allocation,
    Experiment,
    MachineState,
    Trial,
)
from det_jupyter.scheduler.deciding.pool import Pool
from det_jupyter.scheduler.model import (
    AgentSlots,
    Fitting,
    Group,
    Part,
    Policy,
    PoolRules,
    Request,
    Running,
)
from det_jupyter.scheduler.reasons.possible import find_impossibility
from det_jupyter.wire import AllocationState


@dataclass(frozen=True, slots=True)
class _Place:
    """A trial's entry in the pools: in several if its gang spans agents of several."""

    pools: tuple[str, ...]
    request_id: str
    waits: bool
    is_leaving: bool


class Pools:
    """See the module's docstring.

    Args:
        state: What it follows.
    """

    def __init__(self, state: MachineState) -> None:
        self._state = state
        self._num_noted = 0  # changes that the present pools do not count
        self.stuck: dict[str, str] = {}  # pools whose passes fail, and why (scheduling.py)
        self._build()

    def redefine(self) -> None:
        """Make the pools anew from the state."""
        self._num_noted = self.version + 1
        self._build()
        self.stuck = {name: self.stuck[name] for name in self.stuck if name in self.configs}

    def _build(self) -> None:
        state = self._state
        self.configs = {pool.pool_name: pool for pool in parse_pools({"pools": state.pools}).pools}
        self._pools = {name: Pool(to_rules(config)) for name, config in self.configs.items()}
        self._places: dict[int, _Place] = {}  # by trial
        self._decided: dict[str, int] = {}  # the version of each pool at its last pass
        self._agents: dict[str, str] = {}  # the pool of each
        self._groups: dict[int, set[str]] = {}  # the pools that know an experiment
        self._allocations: dict[str, int] = {}  # trial by request
        self._whole: dict[str, tuple[int, ...] | None] = {}  # all slots of each agent
        self._impossible: dict[tuple[str, int, bool], str | None] = {}  # answers so far
        for agent in state.agents.values():
            self.note_agent(agent.id)
        for experiment in state.living_experiments():
            self.note_experiment(experiment)
        for trial in state.trials.values():
            self.note_trial(trial)

    # updates

    def note_agent(self, agent_id: str) -> None:
        """Note an agent as it is now, or that it is gone."""
        self._num_noted += 1
        agent = self._state.agents.get(agent_id)
        self._note_whole(agent_id, agent)
        if agent is None:
            if pool := self._agents.pop(agent_id, None):
                self._pools[pool].remove_agent(agent_id)
            return
        name = self.pool_of_agent(agent_id)
        self._agents[agent_id] = name
        self._pools[name].set_agent(_to_agent_slots(agent, self.configs[name]))

    def _note_whole(self, agent_id: str, agent: Agent | None) -> None:
        """Drop the answers about what pools can run, if they may have changed."""
        whole = None if agent is None else tuple(slot.id for slot in agent.slots)
        if whole != self._whole.get(agent_id):
            self._whole[agent_id] = whole
            self._impossible.clear()

    def note_experiment(self, experiment: Experiment) -> None:
        """Note what slots an experiment may have."""
        if experiment.state.is_terminal:
            for name in self._groups.pop(experiment.id, ()):
                self._pools[name].remove_group(experiment.id)
            return
        for name in self._groups.setdefault(experiment.id, set()) | {self.pool_of(experiment)}:
            self._groups[experiment.id].add(name)
            self._pools[name].set_group(_to_group(experiment))

    def note_trial(self, trial: Trial) -> None:
        """Note whether a trial waits, holds slots, or neither."""
        before, now = self._places.get(trial.id), self._place_of(trial)
        if before == now:
            return
        if before is not None and (
            now is None or (before.pools, before.request_id) != (now.pools, now.request_id)
        ):
            for name in before.pools:
                self._pools[name].remove(before.request_id)
            del self._places[trial.id]
            del self._allocations[before.request_id]
        if now is not None:
            assert trial.allocation is not None
            for name in now.pools:
                self._enter(name, trial, trial.allocation, now)
            self._places[trial.id] = now
            self._allocations[now.request_id] = trial.id

    def _enter(self, name: str, trial: Trial, allocation: Allocation, place: _Place) -> None:
        pool = self._pools[name]
        experiment = self._state.experiments[trial.experiment_id]
        if experiment.id not in pool.groups:
            self._groups.setdefault(experiment.id, set()).add(name)
            pool.set_group(_to_group(experiment))
        if place.waits:
            pool.add(to_request(trial, experiment))
        elif allocation.id not in pool.running:
            running = _to_running(trial, experiment, allocation)
            own = (part for part in running.parts if self.pool_of_agent(part.agent_id) == name)
            pool.hold(replace(running, parts=tuple(own)))
        elif place.is_leaving:
            pool.leave(allocation.id)

    def _place_of(self, trial: Trial) -> _Place | None:
        allocation = trial.allocation
        if allocation is None or allocation.state is AllocationState.ENDED:
            return None
        if allocation.state is AllocationState.QUEUED:
            experiment = self._state.experiments[trial.experiment_id]
            return _Place((self.pool_of(experiment),), allocation.id, True, False)
        pools = dict.fromkeys(self.pool_of_agent(agent_id) for agent_id in allocation.agent_ids)
        is_leaving = allocation.state is AllocationState.STOPPING
        return _Place(tuple(pools), allocation.id, False, is_leaving)

    # questions

    def __getitem__(self, name: str) -> Pool:
        return self._pools[name]

    def items(self) -> Iterable[tuple[str, Pool]]:
        """Return the pools by name."""
        return self._pools.items()

    def pool_of(self, experiment: Experiment) -> str:
        """Return the pool whose slots an experiment gets; the default one if its own is gone."""
        return experiment.pool if experiment.pool in self._pools else DEFAULT_POOL

    def pool_of_agent(self, agent_id: str) -> str:
        """Return the pool that an agent belongs to."""
        named = (name for name, config in self.configs.items() if config.has(agent_id))
        return next(named, DEFAULT_POOL)

    def trial_of(self, request_id: str) -> Trial:
        """Return the trial whose run it is."""
        return self._state.trials[self._allocations[request_id]]

    def find_impossibility(self, name: str, slots: int, *, is_single_agent: bool) -> str | None:
        """Return why a pool can never run such trials, with no slot withheld; None: it can."""
        asked = (name, slots, is_single_agent)
        if asked not in self._impossible:
            agents = (self._state.agents[agent_id] for agent_id in self._pools[name].agents)
            self._impossible[asked] = find_impossibility(
                slots,
                is_single_agent,
                [_to_agent_slots(_without_bars(agent), self.configs[name]) for agent in agents],
                self._pools[name].rules,
                name,
            )
        return self._impossible[asked]

    def lost_agents(self, name: str) -> list[AgentSlots]:
        """Return the agents of a pool that are away or lost, as they would be if they came."""
        away = (agent for agent in self._state.agents.values() if agent.is_away)
        return [
            _to_agent_slots(agent.model_copy(update={"is_away": False}), self.configs[name])
            for agent in (*self._state.lost_agents.values(), *away)
            if self.pool_of_agent(agent.id) == name
        ]

    @property
    def version(self) -> int:
        """Counts the changes of all pools, and of what there is to say of their agents."""
        return self._num_noted + sum(pool.version for pool in self._pools.values())

    def undecided(self) -> Iterator[str]:
        """Yield the pools that have changed since their last pass, which is due now."""
        for name in self.configs:
            if self._pools[name].version != self._decided.get(name):
                yield name
                self._decided[name] = self._pools[name].version


def to_rules(config: PoolConfig) -> PoolRules:
    """Return a pool's rules as the scheduler wants them."""
    scheduler = config.scheduler
    return PoolRules(
        policy=Policy(scheduler.type),
        preemption=scheduler.preemption,
        fitting=Fitting(scheduler.fitting_policy),
        allow_heterogeneous_fits=scheduler.allow_heterogeneous_fits,
        max_aux_per_agent=config.max_aux_containers_per_agent,
        reservation_depth=scheduler.reservation_depth,
    )


def to_request(trial: Trial, experiment: Experiment) -> Request:
    """Return what a trial asks of the scheduler."""
    assert trial.allocation is not None
    return Request(
        id=trial.allocation.id,
        group=experiment.id,
        slots=experiment.slots_per_trial,
        number=trial.id,
        is_single_agent=experiment.is_single_agent,
        blocked=frozenset(trial.avoids),
        promised=tuple(trial.allocation.promised),
    )


def _to_group(experiment: Experiment) -> Group:
    return Group(
        id=experiment.id,
        priority=experiment.priority,
        weight=experiment.weight,
        max_slots=experiment.max_slots,
        position=experiment.position,
    )


def _to_running(trial: Trial, experiment: Experiment, allocation: Allocation) -> Running:
    assert allocation.started_at is not None
    return Running(
        request=to_request(trial, experiment),
        parts=parts_of(allocation),
        since=allocation.started_at,
        is_leaving=allocation.state is AllocationState.STOPPING,
        is_backfill=allocation.is_backfill,
    )


def parts_of(allocation: Allocation) -> tuple[Part, ...]:
    """Return the slots that it holds, agent by agent, without places that are no slots."""
    slots: dict[str, list[int]] = {}
    for agent_id, slot in zip(allocation.agent_ids, allocation.slots, strict=True):
        slots.setdefault(agent_id, []).extend([slot.id] if slot.id >= 0 else [])
    return tuple(Part(agent_id, tuple(ids)) for agent_id, ids in slots.items())


def _without_bars(agent: Agent) -> Agent:
    return agent.model_copy(update={"disabled": [], "occupied": {}, "is_away": False})


def _to_agent_slots(agent: Agent, config: PoolConfig) -> AgentSlots:
    barred = set(agent.disabled)
    if not config.share_devices:
        barred |= {slot_id for slot_id, processes in agent.occupied.items() if processes}
    if agent.is_away:
        barred |= {slot.id for slot in agent.slots}
    usable = tuple(sorted(slot.id for slot in agent.slots if slot.id not in barred))
    return AgentSlots(
        id=agent.id,
        kind=agent.slots[0].kind if agent.slots else "cpu",
        slots=usable,
        is_open=not agent.is_away and len(agent.disabled) < max(1, len(agent.slots)),
    )
