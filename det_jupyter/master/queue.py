"""The machine's state as the scheduler sees it: agents with free slots, and requests."""

from __future__ import annotations

from det_jupyter.master.roster import Roster
from det_jupyter.master.state import Agent, Allocation, Experiment, MachineState, Trial
from det_jupyter.scheduler import AgentSlots, Holder, Request
from det_jupyter.wire import AllocationState


def find_request(trial: Trial) -> Allocation | None:
    """Return the trial's allocation if it waits for slots."""
    allocation = trial.allocation
    if allocation is not None and allocation.state is AllocationState.QUEUED:
        return allocation
    return None


def to_request(trial: Trial, experiment: Experiment) -> Request:
    """Return what a waiting trial asks of the scheduler."""
    allocation = find_request(trial)
    assert allocation is not None
    return Request(
        id=allocation.id,
        slots=experiment.slots_per_trial,
        priority=int(experiment.config["resources"]["priority"]),
        queued_at=allocation.queued_at,
        number=trial.id,
    )


def agents_as_they_are(state: MachineState, roster: Roster) -> list[AgentSlots]:
    """Return a snapshot of all agents: what is free, and who holds the rest."""
    return [
        AgentSlots(
            id=agent.id,
            kind=agent.slots[0].kind if agent.slots else "cpu",
            total=len(agent.slots),
            free=tuple(sorted({s.id for s in agent.slots} - slots_in_use(agent, roster).keys())),
            holders=tuple(_holders(state, roster.holding(agent.id))),
        )
        for agent in state.agents.values()
    ]


def slots_in_use(agent: Agent, roster: Roster) -> dict[int, str]:
    """Return which slots of an agent are taken, and by which allocation."""
    return {
        slot.id: trial.allocation.id
        for trial in roster.holding(agent.id)
        if trial.allocation is not None
        for slot in trial.allocation.slots
    }


def _holders(state: MachineState, trials: list[Trial]) -> list[Holder]:
    by_experiment: dict[int, list[Trial]] = {}
    for trial in trials:
        by_experiment.setdefault(trial.experiment_id, []).append(trial)
    return [
        _holder(state.experiments[experiment_id], holding)
        for experiment_id, holding in by_experiment.items()
    ]


def _holder(experiment: Experiment, trials: list[Trial]) -> Holder:
    allocations = [trial.allocation for trial in trials if trial.allocation is not None]
    return Holder(
        trial_ids=tuple(trial.id for trial in trials),
        experiment_id=experiment.id,
        experiment_name=experiment.name,
        slots=sum(len(allocation.slots) for allocation in allocations),
        is_leaving=all(a.state is AllocationState.STOPPING for a in allocations),
    )
