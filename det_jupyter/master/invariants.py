"""What is always true of the machine's state, between any two events."""

from __future__ import annotations

from det_jupyter.master.queue import agents_as_they_are, find_request, to_request
from det_jupyter.master.state import MachineState, Trial
from det_jupyter.scheduler import schedule
from det_jupyter.wire import AllocationState, State


def check(state: MachineState) -> None:
    """Assert all of it; the message names the first thing that is wrong."""
    for trial in state.trials.values():
        _check_trial(state, trial)
    for experiment in state.experiments.values():
        trials = [state.trials[trial_id] for trial_id in experiment.trial_ids]
        if experiment.state.is_terminal:
            assert all(t.state.is_terminal for t in trials), f"{experiment.id} left trials behind"
            assert experiment.ended_at is not None
        elif experiment.state in (State.ACTIVE, State.PAUSED):
            living = {t.state for t in trials if not t.state.is_terminal}
            assert living <= {experiment.state, State.STOPPING_COMPLETED}
    _check_slots(state)
    _check_queue(state)


def _check_trial(state: MachineState, trial: Trial) -> None:
    allocation = trial.allocation
    holds = allocation is not None and allocation.holds_slots
    waits = find_request(trial) is not None
    assert trial.id in state.experiments[trial.experiment_id].trial_ids
    if trial.state.is_terminal:
        assert not holds, f"trial {trial.id} is {trial.state} and holds slots"
        assert not waits, f"trial {trial.id} is {trial.state} and queues"
        assert trial.ended_at is not None
    if trial.state is State.ACTIVE:
        assert holds or waits, f"trial {trial.id} is active and neither runs nor queues"
    if trial.state is State.PAUSED:
        assert not waits, f"trial {trial.id} is paused and queues"
    assert waits == (trial.waiting_for is not None), f"trial {trial.id}: sentence and queue differ"
    if allocation is not None and holds:
        needed = state.experiments[trial.experiment_id].slots_per_trial
        assert len(allocation.slots) == needed, f"trial {trial.id}: half a gang"
        assert allocation.agent_id is not None
    if allocation is not None and allocation.state is AllocationState.STOPPING:
        assert trial.state is not State.COMPLETED


def _check_slots(state: MachineState) -> None:
    taken: set[tuple[str | None, int]] = set()
    for trial in state.trials.values():
        if trial.allocation is not None and trial.allocation.holds_slots:
            for slot in trial.allocation.slots:
                place = (trial.allocation.agent_id, slot.id)
                assert place not in taken, f"slot {place} is in two gangs"
                taken.add(place)


def _check_queue(state: MachineState) -> None:
    waiting = [
        to_request(trial, state.experiments[trial.experiment_id])
        for trial in state.trials.values()
        if find_request(trial) is not None
    ]
    assert not schedule(agents_as_they_are(state), waiting), "a trial waits although it fits"
