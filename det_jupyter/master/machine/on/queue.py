"""What changes the order of the queue, and the shares in it.

ResourcesChangeRequested   priority, weight, max_slots and pool of an experiment, while it runs
MoveRequested              its place in the queue
QueueChangesRequested      several of these: all are made or none

Everything is checked before anything is changed (rules/queue_checks.py). No work is lost: a trial
that has to go is asked to save its state first, and queues again.
"""

from __future__ import annotations

from det_jupyter.errors import ConfigError, Conflict, Problem
from det_jupyter.master.machine.core.requests import (
    MoveRequested,
    QueueChangesRequested,
    ResourcesChangeRequested,
)
from det_jupyter.master.machine.core.state import Experiment
from det_jupyter.master.machine.core.turn import Turn
from det_jupyter.master.machine.rules.placing import make_leave
from det_jupyter.master.machine.rules.queue_checks import (
    anchor_id_of,
    find_queue_problems,
    find_wrong_move,
    find_wrong_values,
    place_of,
)
from det_jupyter.wire import AllocationState, ChangeResources, MoveInQueue, State


def on_resources_change_requested(turn: Turn, event: ResourcesChangeRequested) -> None:
    """Give an experiment another priority, weight, limit or pool."""
    experiment = _living(turn, event.experiment_id)
    if event.change == ChangeResources():
        raise ConfigError(["nothing to change: give priority, weight, max_slots or resource_pool"])
    if found := list(find_wrong_values(turn.pools, experiment, event.change)):
        raise ConfigError([Problem(where, problem) for where, problem in found])
    _change_resources(turn, experiment, event.change)


def on_move_requested(turn: Turn, event: MoveRequested) -> None:
    """Put an experiment right ahead of, or right behind, another one; it takes its priority."""
    experiment = _living(turn, event.experiment_id)
    anchor = _living(turn, anchor_id_of(event.move))
    places = {each.id: place_of(turn.pools, each) for each in (experiment, anchor)}
    if problem := find_wrong_move(turn.pools, experiment.id, anchor.id, places):
        raise Conflict(problem)
    _move(turn, experiment, event.move)


def on_queue_changes_requested(turn: Turn, event: QueueChangesRequested) -> None:
    """Make all of the changes, or none if there is anything wrong with one."""
    if problems := find_queue_problems(turn.state, turn.pools, event.changes):
        raise ConfigError(problems)
    for change in event.changes:
        experiment = turn.state.experiment(change.experiment_id)
        if isinstance(change.request, MoveInQueue):
            _move(turn, experiment, change.request)
        else:
            _change_resources(turn, experiment, change.request)


def _change_resources(turn: Turn, experiment: Experiment, change: ChangeResources) -> None:
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
    for trial in turn.indexes.living(experiment.id):
        if trial.allocation is not None and trial.allocation.state is AllocationState.QUEUED:
            turn.touch(trial)
    if experiment.max_slots is not None:
        _shed(turn, experiment, experiment.max_slots)


def _shed(turn: Turn, experiment: Experiment, max_slots: int) -> None:
    """Have as many trials leave as hold too much now, the newest first."""
    holding = [
        (allocation.started_at or 0.0, trial)
        for trial in turn.indexes.living(experiment.id)
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


def _change_pool(turn: Turn, experiment: Experiment, pool: str) -> None:
    """Waiting trials wait in the new pool; running ones save, leave, and queue there."""
    experiment.pool = pool
    for trial in turn.indexes.living(experiment.id):
        if trial.holds_slots and trial.state is State.ACTIVE and not trial.is_resting:
            make_leave(turn, trial, at_once=False)


def _note_in_config(experiment: Experiment, change: ChangeResources) -> None:
    """Keep the effective configuration true: people read it, and forks begin with it."""
    changed = change.model_dump(exclude_none=True)
    if change.max_slots == "none":
        changed["max_slots"] = None
    experiment.change_section("resources", changed)


def _move(turn: Turn, experiment: Experiment, move: MoveInQueue) -> None:
    anchor = turn.state.experiment(anchor_id_of(move))
    is_ahead = move.ahead_of is not None
    experiment.position = _position_beside(turn, experiment, anchor, is_ahead=is_ahead)
    experiment.priority = anchor.priority
    turn.touch(experiment)


def _position_beside(
    turn: Turn, experiment: Experiment, anchor: Experiment, *, is_ahead: bool
) -> float:
    """Return a position between the anchor and its neighbour on that side."""
    lane = sorted(
        (
            other
            for other in turn.state.living_experiments()
            if other.priority == anchor.priority and other is not experiment
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


def _living(turn: Turn, experiment_id: int) -> Experiment:
    experiment = turn.state.experiment(experiment_id)
    if experiment.state.is_terminal:
        raise Conflict(f"experiment {experiment_id} is over ({experiment.state})")
    return experiment
