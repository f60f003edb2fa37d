"""What changes who may have which slots: pools, priorities, places in the queue, devices.

ResourcesChangeRequested   priority, weight, max_slots and pool of an experiment, while it runs
MoveRequested              its place in the queue
SlotsSwitched              slots that are given out no more, or again
DevicesReported            strangers on the devices of an agent
PoolsSet                   which pools there are, and their rules

Nobody loses work by any of it: a trial that has to go is asked to save its state first, and queues
again.
"""

from __future__ import annotations

from det_jupyter.config.pools import parse_pools
from det_jupyter.config.sections import MAX_SLOTS, MAX_WEIGHT, MIN_WEIGHT
from det_jupyter.errors import ConfigError, Conflict, NotFound
from det_jupyter.master.machine.core.events import (
    DevicesReported,
    MoveRequested,
    PoolsSet,
    ResourcesChangeRequested,
    SlotsSwitched,
)
from det_jupyter.master.machine.core.state import Experiment, Trial
from det_jupyter.master.machine.core.turn import Turn
from det_jupyter.master.machine.rules.placing import make_leave
from det_jupyter.scheduler.model import Policy
from det_jupyter.wire import AllocationState, ChangeResources, State


def on_resources_change_requested(turn: Turn, event: ResourcesChangeRequested) -> None:
    """Give an experiment another priority, weight, limit or pool."""
    experiment = _living(turn, event.experiment_id)
    change = event.change
    if problems := _problems(turn, experiment, change):
        raise ConfigError(problems)
    if change.priority is not None and change.priority != experiment.priority:
        experiment.priority = change.priority
        experiment.position = float(experiment.id)  # as Determined has it: a new lane, a new place
    if change.weight is not None:
        experiment.weight = change.weight
    if change.max_slots is not None:
        experiment.max_slots = None if change.max_slots == "none" else change.max_slots
    if change.resource_pool is not None and change.resource_pool != experiment.pool:
        _change_pool(turn, experiment, change.resource_pool)
    _note_in_config(experiment, change)
    turn.touch(experiment)
    for trial in _waiting(turn, experiment):
        turn.touch(trial)
    if experiment.max_slots is not None:
        _shed(turn, experiment, experiment.max_slots)


def _shed(turn: Turn, experiment: Experiment, max_slots: int) -> None:
    """Have as many trials leave as hold too much now, the newest first."""
    holding = [
        (allocation.started_at or 0.0, trial)
        for trial in turn.living_trials_of(experiment)
        if (allocation := trial.allocation) is not None
        and allocation.state in (AllocationState.STARTING, AllocationState.RUNNING)
    ]
    too_many = len(holding) * experiment.slots_per_trial - max_slots
    for _, trial in sorted(holding, key=lambda held: (held[0], held[1].id), reverse=True):
        if too_many <= 0:
            return
        too_many -= experiment.slots_per_trial
        turn.touch(trial, "its experiment may hold fewer slots now")
        make_leave(turn, trial, at_once=False)


def _problems(turn: Turn, experiment: Experiment, change: ChangeResources) -> list[str]:
    problems = []
    if change == ChangeResources():
        problems.append("nothing to change: give priority, weight, max_slots or resource_pool")
    if change.priority is not None and not 1 <= change.priority <= 99:
        problems.append(f"priority: got {change.priority}, expected a number from 1 to 99")
    if change.weight is not None and not MIN_WEIGHT <= change.weight <= MAX_WEIGHT:
        problems.append(
            f"weight: got {change.weight:g}, expected a number from {MIN_WEIGHT:g} to "
            f"{MAX_WEIGHT:g}"
        )
    least = max(1, experiment.slots_per_trial)
    if isinstance(change.max_slots, int) and change.max_slots < least:
        problems.append(
            f"max_slots: got {change.max_slots}, expected at least {least} "
            f"(resources.slots_per_trial), or none; to stop its trials, pause it"
        )
    if isinstance(change.max_slots, int) and change.max_slots > MAX_SLOTS:
        problems.append(
            f"max_slots: got {change.max_slots}, expected at most {MAX_SLOTS}, or none"
        )
    if change.resource_pool is not None:
        problems += _pool_problems(turn, experiment, change.resource_pool)
    return problems


def _pool_problems(turn: Turn, experiment: Experiment, pool: str) -> list[str]:
    if pool not in turn.pools.configs:
        return [unknown_pool("resource_pool", pool, turn)]
    problem = turn.pools.find_impossibility(
        pool, experiment.slots_per_trial, is_single_agent=experiment.is_single_agent
    )
    return [problem] if problem else []


def unknown_pool(where: str, name: str, turn: Turn) -> str:
    """Return what to say about a pool that does not exist."""
    known = ", ".join(turn.pools.configs)
    return f"{where}: got {name!r}; there is no such pool, there are: {known}"


def _change_pool(turn: Turn, experiment: Experiment, pool: str) -> None:
    """Waiting trials wait in the new pool; running ones save, leave, and queue there."""
    experiment.pool = pool
    for trial in turn.living_trials_of(experiment):
        if trial.holds_slots and trial.state is State.ACTIVE and not trial.is_resting:
            make_leave(turn, trial, at_once=False)


def _note_in_config(experiment: Experiment, change: ChangeResources) -> None:
    """Keep the effective configuration true: people read it, and forks begin with it."""
    changed = change.model_dump(exclude_none=True)
    resources = experiment.config["resources"] | changed
    if resources.get("max_slots") == "none":
        resources["max_slots"] = None
    config = experiment.config | {"resources": resources}
    experiment.reconfigure(config, [f"resources.{key}" for key in changed])


def on_move_requested(turn: Turn, event: MoveRequested) -> None:
    """Put an experiment right ahead of, or right behind, another one; it takes its priority."""
    experiment = _living(turn, event.experiment_id)
    ahead_of, behind = event.move.ahead_of, event.move.behind
    if (ahead_of is None) == (behind is None):
        raise ConfigError(["give one of ahead_of and behind: the experiment to move by"])
    anchor_id = ahead_of if ahead_of is not None else behind
    assert anchor_id is not None
    if anchor_id == experiment.id:
        raise Conflict(f"experiment {anchor_id} cannot be moved relative to itself")
    anchor = _living(turn, anchor_id)
    pool = turn.pools.pool_of(experiment)
    if pool != turn.pools.pool_of(anchor):
        raise Conflict(
            f"experiment {experiment.id} queues in pool {pool}, experiment {anchor.id} in pool "
            f"{turn.pools.pool_of(anchor)}; only within a pool is there an order"
        )
    if turn.pools[pool].rules.policy is not Policy.PRIORITY:
        raise Conflict(
            f"pool {pool} shares its slots by {turn.pools[pool].rules.policy}: there is no order "
            "to change; change the experiment's weight"
        )
    experiment.position = _position_beside(turn, experiment, anchor, is_ahead=ahead_of is not None)
    experiment.priority = anchor.priority
    turn.touch(experiment)


def _position_beside(
    turn: Turn, experiment: Experiment, anchor: Experiment, *, is_ahead: bool
) -> float:
    """Return a position between the anchor and its neighbour on that side."""
    lane = sorted(
        (
            other
            for other in turn.state.experiments.values()
            if not other.state.is_terminal
            and other.priority == anchor.priority
            and other is not experiment
        ),
        key=lambda other: (other.position, other.id),
    )
    for _ in range(2):
        low, high = _gap(turn, lane, lane.index(anchor), is_ahead=is_ahead)
        middle = (low + high) / 2
        if low < middle < high:
            return middle
        _spread(turn, lane)  # halved too often: there is nothing left between the two
    raise AssertionError("neighbours that were spread have room between them")


def _gap(turn: Turn, lane: list[Experiment], place: int, *, is_ahead: bool) -> tuple[float, float]:
    """Return the positions between which one comes that moves beside this place."""
    if is_ahead:
        low = lane[place - 1].position if place > 0 else lane[place].position - 1.0
        return low, lane[place].position
    is_last = place == len(lane) - 1
    coming = float(turn.state.last_experiment_id + 1)
    return lane[place].position, coming if is_last else lane[place + 1].position


def _spread(turn: Turn, lane: list[Experiment]) -> None:
    """Give experiments positions apart from one another, before those that are still to come."""
    for place, experiment in enumerate(lane):
        experiment.position = turn.state.last_experiment_id + place / len(lane)
        turn.touch(experiment)


def on_slots_switched(turn: Turn, event: SlotsSwitched) -> None:
    """Give slots out no more, or again."""
    agent = turn.state.agents.get(event.agent_id)
    if agent is None:
        known = ", ".join(sorted(turn.state.agents)) or "none"
        raise NotFound(f"there is no agent {event.agent_id!r}; there are: {known}")
    own = {slot.id for slot in agent.slots}
    chosen = own if event.switch.slots is None else set(event.switch.slots)
    if strange := sorted(chosen - own):
        raise NotFound(
            f"agent {agent.id} has no slot {', '.join(map(str, strange))}; "
            f"it has {', '.join(map(str, sorted(own)))}"
        )
    disabled = set(agent.disabled)
    agent.disabled = sorted(disabled - chosen if event.switch.enabled else disabled | chosen)
    turn.state.disabled[agent.id] = agent.disabled
    turn.pools.note_agent(agent.id)
    if event.switch.enabled or event.switch.drain:
        return
    for trial in turn.indexes.holding(agent.id):
        if _stands_on(trial, agent.id, chosen):
            turn.touch(trial, f"its slots on {agent.id} were disabled")
            make_leave(turn, trial, at_once=False)


def _stands_on(trial: Trial, agent_id: str, slot_ids: set[int]) -> bool:
    allocation = trial.allocation
    assert allocation is not None
    if allocation.state is AllocationState.STOPPING:
        return False
    places = zip(allocation.agent_ids, allocation.slots, strict=True)
    return any(agent == agent_id and slot.id in slot_ids for agent, slot in places)


def on_devices_reported(turn: Turn, event: DevicesReported) -> None:
    """Take note of strangers; a gang of ours that is on such a device stays."""
    agent = turn.state.agents.get(event.agent_id)
    if agent is not None:
        agent.occupied = {slot: found for slot, found in event.processes.items() if found}
        turn.pools.note_agent(agent.id)


def on_pools_set(turn: Turn, event: PoolsSet) -> None:
    """Have these pools from now on; trials go on where they are, and wait where they belong."""
    parsed = parse_pools({"pools": event.pools})
    names = {pool.pool_name for pool in parsed.pools}
    used = {
        experiment.pool: experiment
        for experiment in turn.state.experiments.values()
        if not experiment.state.is_terminal and experiment.pool not in names
    }
    if used:
        raise Conflict(
            "; ".join(
                f"pool {name} is needed by experiment {experiment.id}: "
                "end it, or set another pool for it"
                for name, experiment in used.items()
            )
        )
    turn.state.pools = event.pools
    turn.pools.redefine()


def _living(turn: Turn, experiment_id: int) -> Experiment:
    experiment = turn.experiment(experiment_id)
    if experiment.state.is_terminal:
        raise Conflict(f"experiment {experiment_id} is over ({experiment.state})")
    return experiment


def _waiting(turn: Turn, experiment: Experiment) -> list[Trial]:
    return [
        trial
        for trial in turn.living_trials_of(experiment)
        if trial.allocation is not None and trial.allocation.state is AllocationState.QUEUED
    ]
