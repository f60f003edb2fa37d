"""Makes the view of a gang that leaves: the ranks that it waits for, and what follows. Pure."""

from __future__ import annotations

from det_jupyter.contract.messages import AllocationState, State
from det_jupyter.contract.messages.leaving import After, Leaving
from det_jupyter.contract.messages.status import PAUSES
from det_jupyter.master.machine.model.allocations import Allocation
from det_jupyter.master.machine.model.state import MachineState, Trial


def leaving_of(state: MachineState, trial: Trial, steps_completed: int) -> Leaving | None:
    """Return the view of a trial's gang if it leaves, or is being killed; else None.

    Args:
        state: The experiments and agents.
        trial: The trial.
        steps_completed: Its progress.
    """
    allocation = trial.allocation
    if allocation is None or allocation.state is not AllocationState.STOPPING:
        return None
    experiment = state.experiments[trial.experiment_id]
    asked_at = allocation.asked_at
    killed_at = None if asked_at is None else asked_at + experiment.preemption_timeout
    saved = trial.latest_checkpoint.steps_completed if trial.latest_checkpoint else None
    behind, batch, since = _behind(allocation)
    return Leaving(
        experiment_id=experiment.id,
        then=_what_follows(trial),
        asked_at=asked_at,
        unreached=_unreached(state, allocation, asked_at),
        killed_at=killed_at,
        num_slots=sum(slot.id >= 0 for slot in allocation.slots),
        num_ranks=max(1, len(allocation.places)),
        num_trials=len(experiment.trial_ids),
        resized_because=allocation.resized_because if trial.state is State.ACTIVE else "",
        next_slots=sum(map(len, allocation.becomes.values())),
        preempted_by=allocation.preempted_by if trial.state is State.ACTIVE else None,
        behind=behind,
        batch=batch,
        since=since,
        checked_at=allocation.checked_at,
        saving_since=allocation.saving_since,
        hang=allocation.hang,
        saved_at=saved,
        # The newest progress may not be reported yet.
        num_unsaved=max(0, steps_completed - (saved or 0), (batch or 0) - (saved or 0)),
    )


def _unreached(state: MachineState, allocation: Allocation, asked_at: float | None) -> str:
    """Return the problem of an agent that was not connected when its ranks were asked to leave."""
    for part in allocation.living_parts:
        agent = state.agents.get(part.agent_id)
        if agent is None or not (agent.is_away and agent.problem):
            continue
        if asked_at is None or agent.left_at is None or agent.left_at <= asked_at:
            return agent.problem
    return ""


def _what_follows(trial: Trial) -> After:
    if trial.state in PAUSES:
        return "pauses"
    if trial.state is not State.ACTIVE:
        return "ends"
    if trial.is_resting:
        return "rests"
    return "resizes" if trial.allocation and trial.allocation.resized_because else "queues"


def _behind(allocation: Allocation) -> tuple[list[int], int | None, float]:
    """Return the ranks that are farthest behind, their batch, and since when they are in it."""
    places = allocation.places
    if not places:
        return [], None, 0.0
    reached = {
        rank: (-1 if place.batch is None else place.batch, place.is_exchanging)
        for rank, place in places.items()
    }
    least = min(reached.values())
    behind = sorted(rank for rank, place in reached.items() if place == least)
    return behind, places[behind[0]].batch, max(places[rank].since for rank in behind)
