"""Changes of the queue, and of which slots may be given out.

ChangeResources    priority, weight, max_slots and pool of an experiment, while it is not over
MoveInQueue        its place in the queue
ChangeQueue        several of these changes: either all are made, or none
SwitchSlots        slots of an agent are disabled or enabled
SetPools           the pools and their rules
SlotsSettled       slots have been free for a while: elastic trials may grow

Everything is checked before anything is changed (rules/queue_checks.py). No work is lost: a trial
that has to leave is asked to save its state first, and queues again.
"""

from __future__ import annotations

from det_jupyter.config.pools import parse_pools
from det_jupyter.contract.messages import (
    AllocationState,
    ChangeQueue,
    ChangeResources,
    MoveInQueue,
    SetPools,
    State,
    SwitchSlots,
)
from det_jupyter.contract.messages.status import in_words
from det_jupyter.errors import ConfigError, Conflict, NotFound, Problem
from det_jupyter.master.machine.model.events import SlotsSettled
from det_jupyter.master.machine.model.state import Experiment, Trial
from det_jupyter.master.machine.model.turn import Turn
from det_jupyter.master.machine.rules.placing import stop_run
from det_jupyter.master.machine.rules.queue_checks import (
    anchor_id_of,
    find_move_problem,
    find_queue_problems,
    find_value_problems,
    queue_entry,
)
from det_jupyter.scheduler.snapshot import moved_beside


def on_change_resources(turn: Turn, event: ChangeResources) -> None:
    """Change an experiment's priority, weight, maximum of slots or pool."""
    experiment = _unfinished(turn, event.experiment_id)
    if not event.given():
        raise ConfigError(["nothing to change: give priority, weight, max_slots or resource_pool"])
    if found := list(find_value_problems(turn.state, experiment, event)):
        raise ConfigError([Problem(where, problem) for where, problem in found])
    _change_resources(turn, experiment, event)


def on_move_in_queue(turn: Turn, event: MoveInQueue) -> None:
    """Move an experiment right ahead of or behind another one; it gets that one's priority."""
    experiment = _unfinished(turn, event.experiment_id)
    anchor = _unfinished(turn, anchor_id_of(event))
    entries = {each.id: queue_entry(turn.state, each) for each in (experiment, anchor)}
    if problem := find_move_problem(turn.state, experiment.id, anchor.id, entries):
        raise Conflict(problem)
    _move(turn, experiment, event)


def on_change_queue(turn: Turn, event: ChangeQueue) -> None:
    """Make all of the changes, or none if one of them has a problem."""
    if problems := find_queue_problems(turn.state, event.changes):
        raise ConfigError(problems)
    for change in event.changes:
        experiment = turn.state.experiment(change.request.experiment_id)
        if isinstance(change.request, MoveInQueue):
            _move(turn, experiment, change.request)
        else:
            _change_resources(turn, experiment, change.request)


def _change_resources(turn: Turn, experiment: Experiment, change: ChangeResources) -> None:
    if change.priority is not None and change.priority != experiment.priority:
        experiment.priority = change.priority
        # In the order of submission again, as in Determined.
        experiment.position = float(experiment.id)
    if change.weight is not None:
        experiment.weight = change.weight
    if change.max_slots is not None:
        experiment.max_slots = None if change.max_slots == "none" else change.max_slots
    if change.resource_pool is not None and change.resource_pool != experiment.pool:
        _change_pool(turn, experiment, change.resource_pool)
    _update_config(turn, experiment, change)
    turn.touch(experiment)
    for trial in turn.indexes.unfinished_trials(experiment.id):
        if trial.allocation is not None and trial.allocation.state is AllocationState.QUEUED:
            turn.touch(trial)
    if experiment.max_slots is not None:
        _release_excess_slots(turn, experiment, experiment.max_slots)


def _release_excess_slots(turn: Turn, experiment: Experiment, max_slots: int) -> None:
    """Preempt the newest running trials until the experiment holds at most `max_slots` slots."""
    holding = [
        (allocation.started_at or 0.0, trial)
        for trial in turn.indexes.unfinished_trials(experiment.id)
        if (allocation := trial.allocation) is not None
        and allocation.state in (AllocationState.STARTING, AllocationState.RUNNING)
    ]
    excess = sum(trial.num_slots for _, trial in holding) - max_slots
    for _, trial in sorted(holding, key=lambda pair: (pair[0], pair[1].id), reverse=True):
        if excess <= 0:
            return
        excess -= trial.num_slots
        turn.touch(trial, "its experiment may hold fewer slots now")
        stop_run(turn, trial, at_once=False)


def _change_pool(turn: Turn, experiment: Experiment, pool: str) -> None:
    """Move an experiment to a pool: running trials save their state, leave, and queue there."""
    experiment.pool = pool
    for trial in turn.indexes.unfinished_trials(experiment.id):
        if trial.holds_slots and trial.state is State.ACTIVE and not trial.is_resting:
            stop_run(turn, trial, at_once=False)


def _update_config(turn: Turn, experiment: Experiment, change: ChangeResources) -> None:
    """Update the effective configuration: users read it, and forks start from it."""
    changed = change.given()
    if change.max_slots == "none":
        changed["max_slots"] = None
    turn.change_section(experiment, "resources", changed)


def _move(turn: Turn, experiment: Experiment, move: MoveInQueue) -> None:
    state, groups = turn.state, turn.queue.groups
    changed = moved_beside(
        groups[experiment.id],
        groups[anchor_id_of(move)],
        groups.values(),
        is_ahead=move.ahead_of is not None,
        newest=state.last_experiment_id,
    )
    for group in changed:
        other = state.experiments[group.id]
        other.priority, other.position = group.priority, group.position
        turn.touch(other)


def _unfinished(turn: Turn, experiment_id: int) -> Experiment:
    experiment = turn.state.experiment(experiment_id)
    if experiment.state.is_terminal:
        raise Conflict(f"experiment {experiment_id} is {in_words(experiment.state)}")
    return experiment


def on_switch_slots(turn: Turn, event: SwitchSlots) -> None:
    """Disable or enable slots; trials on disabled slots are preempted, except with `drain`."""
    agent = turn.state.agents.get(event.agent_id)
    if agent is None:
        present = ", ".join(sorted(turn.state.agents)) or "none"
        raise NotFound(f"there is no agent {event.agent_id!r}; there are: {present}")
    own = {slot.id for slot in agent.slots}
    chosen = own if event.slots is None else set(event.slots)
    if missing := sorted(chosen - own):
        raise NotFound(
            f"agent {agent.id} has no slot {', '.join(map(str, missing))}; "
            f"it has {', '.join(map(str, sorted(own)))}"
        )
    disabled = set(agent.disabled)
    if event.enabled:
        agent.note_freed(disabled & chosen, turn.now)
    agent.disabled = sorted(disabled - chosen if event.enabled else disabled | chosen)
    turn.state.disabled[agent.id] = agent.disabled
    turn.queue.mark_changed()
    if event.enabled or event.drain:
        return
    for trial in turn.indexes.trials_on_agent(agent.id):
        if _runs_on(trial, agent.id, chosen):
            turn.touch(trial, f"its slots on {agent.id} were disabled")
            stop_run(turn, trial, at_once=False)


def _runs_on(trial: Trial, agent_id: str, slot_ids: set[int]) -> bool:
    allocation = trial.allocation
    assert allocation is not None
    if allocation.state is AllocationState.STOPPING:
        return False
    pairs = zip(allocation.agent_ids, allocation.slots, strict=True)
    return any(agent == agent_id and slot.id in slot_ids for agent, slot in pairs)


def on_slots_settled(turn: Turn, event: SlotsSettled) -> None:
    """Let the scheduler decide again."""
    turn.queue.mark_changed()


def on_set_pools(turn: Turn, event: SetPools) -> None:
    """Replace the pools. Running trials continue; waiting ones wait in their experiment's pool."""
    parsed = parse_pools({"pools": event.pools})
    names = {pool.pool_name for pool in parsed.pools}
    used = {
        experiment.pool: experiment
        for experiment in turn.state.unfinished_experiments()
        if experiment.pool not in names
    }
    if used:
        raise Conflict(
            "; ".join(
                f"pool {name} is needed by experiment {experiment.id}: "
                "end it, or set another pool for it"
                for name, experiment in used.items()
            )
        )
    turn.state.set_pools(event.pools)
    turn.queue.rebuild()
