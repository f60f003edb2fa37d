"""What can be wrong with changes of the queue, before any is made.

Of several changes each is checked as if those before it had been made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from det_jupyter.config.sections import MAX_SLOTS, MAX_WEIGHT, MIN_WEIGHT
from det_jupyter.contract.messages import ChangeResources, MoveInQueue, QueueChange
from det_jupyter.contract.messages.status import in_words
from det_jupyter.errors import ConfigError, Problem
from det_jupyter.master.machine.model.queue import agent_slots, to_rules
from det_jupyter.master.machine.model.state import Experiment, MachineState
from det_jupyter.scheduler.reasons.sizes import find_impossibility


@dataclass(slots=True)
class QueuePlace:
    """Where an experiment would be after the changes so far."""

    pool: str
    priority: int
    set_by: str = ""  # the change that gave it its priority


def place_of(state: MachineState, experiment: Experiment) -> QueuePlace:
    """Return where an experiment is now."""
    return QueuePlace(state.pool_of(experiment), experiment.priority)


def find_queue_problems(state: MachineState, changes: Sequence[QueueChange]) -> list[Problem]:
    """Return everything that is wrong with the changes, if they are made in their order."""
    experiments = state.experiments
    places = {
        i: place_of(state, experiments[i])
        for change in changes
        for i in _named_in(change)
        if i in experiments and not experiments[i].state.is_terminal
    }
    problems: list[Problem] = []
    missing: set[int] = set()  # those that were reported
    for change in changes:
        found = []
        for i in _named_in(change):
            if i not in places and i not in missing:
                found.append(_describe_missing(experiments.get(i), i))
                missing.add(i)
        if places.keys() >= set(_named_in(change)):
            found = _find_wrong(state, change, experiments[change.request.experiment_id], places)
        problems += [Problem(change.where, problem) for problem in found]
    return problems


def _named_in(change: QueueChange) -> list[int]:
    """Return the numbers of the experiments that a change is about."""
    if isinstance(change.request, MoveInQueue):
        return [change.request.experiment_id, anchor_id_of(change.request)]
    return [change.request.experiment_id]


def _describe_missing(experiment: Experiment | None, experiment_id: int) -> str:
    if experiment is None:
        return f"there is no experiment {experiment_id}"
    return f"experiment {experiment_id} is {in_words(experiment.state)}"


def _find_wrong(
    state: MachineState, change: QueueChange, experiment: Experiment, places: dict[int, QueuePlace]
) -> list[str]:
    """Return what is wrong with a change; if nothing is, make it in `places`."""
    place, request = places[experiment.id], change.request
    if isinstance(request, MoveInQueue):
        anchor_id = anchor_id_of(request)
        problem = find_wrong_move(state, experiment.id, anchor_id, places)
        if problem is None:
            place.priority = places[anchor_id].priority
        return [problem] if problem else []
    found = [problem for _, problem in find_wrong_values(state, experiment, request)]
    if not found and request.priority is not None:
        place.priority, place.set_by = request.priority, change.where
    if not found and request.resource_pool is not None:
        place.pool = request.resource_pool
    return found


def find_wrong_values(
    state: MachineState, experiment: Experiment, change: ChangeResources
) -> Iterator[tuple[str, str]]:
    """Yield the field, or nothing, and what is wrong with it."""
    if change.priority is not None and not 1 <= change.priority <= 99:
        yield "priority", f"got {change.priority}, expected a number from 1 to 99"
    if change.weight is not None and not MIN_WEIGHT <= change.weight <= MAX_WEIGHT:
        bounds = f"{MIN_WEIGHT:g} to {MAX_WEIGHT:g}"
        yield "weight", f"got {change.weight:g}, expected a number from {bounds}"
    least = max(1, experiment.slots_per_trial)
    if isinstance(change.max_slots, int) and change.max_slots < least:
        bounds = f"at least {least} (resources.slots_per_trial), or none"
        pause = "to stop its trials, pause it"
        yield "max_slots", f"got {change.max_slots}, expected {bounds}; {pause}"
    if isinstance(change.max_slots, int) and change.max_slots > MAX_SLOTS:
        yield "max_slots", f"got {change.max_slots}, expected at most {MAX_SLOTS}, or none"
    if change.resource_pool is not None:
        yield from _find_wrong_pool(state, experiment, change.resource_pool)


def _find_wrong_pool(
    state: MachineState, experiment: Experiment, pool: str
) -> Iterator[tuple[str, str]]:
    if pool not in state.pool_configs:
        yield "resource_pool", unknown_pool(pool, state)
        return
    problem = find_pool_problem(
        state, pool, experiment.slots_per_trial, is_single_agent=experiment.is_single_agent
    )
    if problem:
        yield "", str(problem)


def find_wrong_move(
    state: MachineState, experiment_id: int, anchor_id: int, places: dict[int, QueuePlace]
) -> str | None:
    """Return why an experiment cannot be moved beside another one."""
    place, anchor = places[experiment_id], places[anchor_id]
    if anchor_id == experiment_id:
        return f"experiment {anchor_id} cannot be moved relative to itself"
    if place.pool != anchor.pool:
        return (
            f"experiment {experiment_id} queues in pool {place.pool}, experiment {anchor_id} in "
            f"pool {anchor.pool}; only within a pool is there an order"
        )
    if (policy := state.pool_configs[place.pool].scheduler.type) != "priority":
        return (
            f"pool {place.pool} shares its slots by {policy}: there is no order to change; "
            "change the experiment's weight"
        )
    if place.set_by and place.priority != anchor.priority:
        return (
            f"experiment {experiment_id} would take priority {anchor.priority} of experiment "
            f"{anchor_id}, and {place.set_by} wants {place.priority}; give one of the two"
        )
    return None


def anchor_id_of(move: MoveInQueue) -> int:
    """Return the number of the experiment that another one is moved by."""
    if (move.ahead_of is None) == (move.behind is None):
        raise ConfigError(["give one of ahead_of and behind: the experiment to move by"])
    anchor_id = move.behind if move.ahead_of is None else move.ahead_of
    assert anchor_id is not None
    return anchor_id


def unknown_pool(name: str, state: MachineState) -> str:
    """Return what to say of a pool that does not exist."""
    return f"got {name!r}; there is no such pool, there are: {', '.join(state.pool_configs)}"


def find_pool_problem(
    state: MachineState, name: str, slots: int, *, is_single_agent: bool
) -> Problem | None:
    """Return why a pool, with the agents that it has now, can never run such trials, if so."""
    config = state.pool_configs[name]
    agents = [agent_slots(agent, config, is_whole=True) for agent in state.agents_of(name)]
    return find_impossibility(slots, is_single_agent, agents, to_rules(config), name)
