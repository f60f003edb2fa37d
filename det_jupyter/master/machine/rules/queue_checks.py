"""Checks of changes to the queue, made before any change is applied.

Of several changes, each is checked as if those before it had been applied.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from det_jupyter.config.sections import MAX_WEIGHT, MIN_WEIGHT
from det_jupyter.contract.messages import ChangeResources, MoveInQueue, QueueChange
from det_jupyter.contract.messages.status import in_words
from det_jupyter.contract.values.sizes import MAX_SLOTS
from det_jupyter.errors import ConfigError, Problem
from det_jupyter.master.machine.model.queue import agent_slots, are_apart, to_rules
from det_jupyter.master.machine.model.state import Experiment, MachineState
from det_jupyter.scheduler.model import AgentSlots, Shape
from det_jupyter.scheduler.reasons.sizes import could_run, find_impossibility


@dataclass(slots=True)
class PoolAndPriority:
    """Pool and priority of an experiment, after the changes that were checked so far."""

    pool: str
    priority: int
    set_by: str = ""  # the change that set the priority


def queue_entry(state: MachineState, experiment: Experiment) -> PoolAndPriority:
    """Return an experiment's current pool and priority."""
    return PoolAndPriority(state.pool_of(experiment), experiment.priority)


def find_queue_problems(state: MachineState, changes: Sequence[QueueChange]) -> list[Problem]:
    """Return all problems of the changes, if they are made in this order."""
    experiments = state.experiments
    entries = {
        i: queue_entry(state, experiments[i])
        for change in changes
        for i in _experiments_in(change)
        if i in experiments and not experiments[i].state.is_terminal
    }
    problems: list[Problem] = []
    missing: set[int] = set()  # ids that a problem reports as missing
    for change in changes:
        found = []
        for i in _experiments_in(change):
            if i not in entries and i not in missing:
                missing.add(i)
                if i in experiments:
                    found.append(f"experiment {i} is {in_words(experiments[i].state)}")
                else:
                    found.append(f"there is no experiment {i}")
        if entries.keys() >= set(_experiments_in(change)):
            found = _check_and_apply(state, change, entries)
        problems += [Problem(change.where, problem) for problem in found]
    return problems


def _experiments_in(change: QueueChange) -> list[int]:
    """Return the ids of the experiments that a change names."""
    if isinstance(change.request, MoveInQueue):
        return [change.request.experiment_id, anchor_id_of(change.request)]
    return [change.request.experiment_id]


def _check_and_apply(
    state: MachineState, change: QueueChange, entries: dict[int, PoolAndPriority]
) -> list[str]:
    """Return the problems of a change; if there are none, apply the change to `entries`."""
    request = change.request
    entry = entries[request.experiment_id]
    if isinstance(request, MoveInQueue):
        anchor_id = anchor_id_of(request)
        problem = find_move_problem(state, request.experiment_id, anchor_id, entries)
        if problem is None:
            entry.priority = entries[anchor_id].priority
        return [problem] if problem else []
    experiment = state.experiments[request.experiment_id]
    found = [problem for _, problem in find_value_problems(state, experiment, request)]
    if not found and request.priority is not None:
        entry.priority, entry.set_by = request.priority, change.where
    if not found and request.resource_pool is not None:
        entry.pool = request.resource_pool
    return found


def find_value_problems(
    state: MachineState, experiment: Experiment, change: ChangeResources
) -> Iterator[tuple[str, str]]:
    """Yield field and text of each problem; the field is "" if several fields cause it."""
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
    pool = change.resource_pool
    if pool is not None and pool not in state.pool_configs:
        yield "resource_pool", unknown_pool_message(pool, state)
    elif pool is not None:
        problem = find_pool_problem(
            state,
            pool,
            experiment.slots_per_trial,
            is_single_agent=experiment.is_single_agent,
            why_one_computer=experiment.why_one_computer,
        )
        if problem:
            yield "", str(problem)


def find_move_problem(
    state: MachineState, experiment_id: int, anchor_id: int, entries: dict[int, PoolAndPriority]
) -> str | None:
    """Return why an experiment cannot be moved beside another one; None if it can be moved."""
    entry, anchor = entries[experiment_id], entries[anchor_id]
    if anchor_id == experiment_id:
        return f"experiment {anchor_id} cannot be moved relative to itself"
    if entry.pool != anchor.pool:
        return (
            f"experiment {experiment_id} queues in pool {entry.pool}, experiment {anchor_id} in "
            f"pool {anchor.pool}; only within a pool is there an order"
        )
    if (policy := state.pool_configs[entry.pool].scheduler.type) != "priority":
        return (
            f"pool {entry.pool} shares its slots by {policy}: there is no order to change; "
            "change the experiment's weight"
        )
    if entry.set_by and entry.priority != anchor.priority:
        return (
            f"experiment {experiment_id} would take priority {anchor.priority} of experiment "
            f"{anchor_id}, and {entry.set_by} is {entry.priority}; give one of the two"
        )
    return None


def anchor_id_of(move: MoveInQueue) -> int:
    """Return the id of the experiment beside which another one is moved.

    Raises:
        ConfigError: The request names no experiment, or one on each side.
    """
    if (move.ahead_of is None) == (move.behind is None):
        raise ConfigError(["give one of ahead_of and behind: the experiment to move by"])
    anchor_id = move.behind if move.ahead_of is None else move.ahead_of
    assert anchor_id is not None
    return anchor_id


def unknown_pool_message(name: str, state: MachineState) -> str:
    """Return the error message about a pool that does not exist."""
    return f"got {name!r}; there is no such pool, there are: {', '.join(state.pool_configs)}"


def find_pool_problem(
    state: MachineState,
    name: str,
    slots: int,
    *,
    is_single_agent: bool,
    why_one_computer: str = "",
) -> Problem | None:
    """Return why a pool can never run trials of this size; None if it can, or possibly can.

    A pool has its present agents; a pool with a cluster may get more nodes of the size of the
    present ones. Without present agents their size is not known.

    Args:
        state: The machine's state.
        name: The pool.
        slots: A trial's number of slots.
        is_single_agent: Whether all of them must be on one agent.
        why_one_computer: Why all of them must be on one computer; "" if they need not.
    """
    config = state.pool_configs[name]
    agents = state.agents_of(name)
    slots_of = [agent_slots(agent, config, is_whole=True) for agent in agents]
    why = "resources.is_single_node" if is_single_agent else ""
    if not why and are_apart(agents):
        why = why_one_computer
    rules = to_rules(config)
    clusters = [each for each in state.clusters if state.pool_of_cluster(each) == name]
    if clusters:
        joined = {agent.id for agent in agents if agent.cluster in clusters and agent.slots}
        largest = max((a for a in slots_of if a.id in joined), key=_size_of, default=None)
        if largest is None:
            return None
        more = range(math.ceil(slots / _size_of(largest)))
        grown = [*slots_of, *(replace(largest, id=f"node {i}") for i in more)]
        if could_run(Shape(slots, bool(why), frozenset()), grown, rules):
            return None
    return find_impossibility(slots, why, slots_of, rules, name)


def _size_of(agent: AgentSlots) -> int:
    return len(agent.slots)
