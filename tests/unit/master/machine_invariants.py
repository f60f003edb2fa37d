"""Invariants of the machine's state after each event."""

from __future__ import annotations

from det_jupyter.contract.messages import AllocationState, State
from det_jupyter.master.machine.machine import Machine
from det_jupyter.master.machine.model.indexes import Indexes
from det_jupyter.master.machine.model.lifecycle import is_stopping
from det_jupyter.master.machine.model.queue import Queue
from det_jupyter.master.machine.model.state import Experiment, MachineState, Trial
from det_jupyter.scheduler.decide import decide

_LATER = 1e12  # after anything that has begun


def check_machine(machine: Machine) -> None:
    """Assert all invariants; the message names the first that is violated."""
    state = machine.state
    fresh = _listed(Indexes(state), state)
    assert _listed(machine.indexes, state) == fresh, "the indexes are not what the state says"
    for experiment in state.experiments.values():
        _check_experiment(state, experiment)
    for trial in state.trials.values():
        _check_trial(state, trial)
    check_gangs(state)
    _check_queue(state, machine.queue)
    _check_models(state)


def _check_models(state: MachineState) -> None:
    for uuid, name in state.registered().items():
        checkpoint = state.checkpoints[uuid]
        owner = state.experiments[checkpoint.experiment_id]
        assert owner.state is not State.DELETING, f"{name} is being deleted with its experiment"
        is_listed = uuid in state.trials[checkpoint.trial_id].checkpoints
        assert is_listed == (checkpoint.state == "COMPLETED"), f"{name} is being deleted"


def _check_experiment(state: MachineState, experiment: Experiment) -> None:
    name = f"experiment {experiment.id} is {experiment.state}"
    trials = state.trials_of(experiment)
    living = {trial.state for trial in trials if not trial.state.is_terminal}
    assert experiment.state.is_terminal == (experiment.ended_at is not None), name
    if experiment.state.is_terminal:
        assert not living, f"{name} and left trials behind"
    elif experiment.state in (State.STOPPING_CANCELED, State.STOPPING_KILLED):
        assert living <= {experiment.state, State.STOPPING_KILLED}, f"{name}, trials: {living}"
        assert living, f"{name} and waits for nothing"
    elif experiment.state.is_open:
        ending = {State.STOPPING_COMPLETED, State.STOPPING_KILLED}
        own = {State.PAUSED} if experiment.state is State.PAUSING else set()
        assert living <= {experiment.state, *own, *ending}, f"{name}, trials: {living}"
    held = [each.holds_slots for each in state.trials_of(experiment)]
    if experiment.state in (State.PAUSING, State.PAUSED) or experiment.state.is_terminal:
        assert any(held) == (experiment.state is State.PAUSING), f"{name}, slots are held: {held}"
    assert any(held) == (experiment.held_since is not None), f"{name}, slots are held: {held}"


def _check_trial(state: MachineState, trial: Trial) -> None:
    name = f"trial {trial.id} is {trial.state}"
    allocation = trial.allocation
    waits = allocation is not None and allocation.state is AllocationState.QUEUED
    assert trial.id in state.experiments[trial.experiment_id].trial_ids
    assert trial.state.is_terminal == (trial.ended_at is not None), name
    if trial.state.is_terminal or trial.state is State.PAUSED:
        assert not trial.holds_slots, f"{name} and holds slots"
        assert trial.room is None, f"{name} and waits for room"
    elif is_stopping(trial.state) or trial.state is State.PAUSING:
        assert trial.holds_slots, f"{name} and waits for nothing"
    elif trial.state is State.ACTIVE:
        idle = not (trial.holds_slots or waits)
        rests = trial.is_resting or trial.room is not None
        assert idle <= rests, f"{name} and neither runs nor queues nor rests"
    for uuid in trial.checkpoints:
        whole = state.checkpoints[uuid].state == "COMPLETED" and not state.checkpoints[uuid].globs
        assert whole, f"{name} and may begin with {uuid}, which is not whole"
    assert not waits or trial.state is State.ACTIVE, f"{name} and queues"
    assert not (waits and trial.is_resting), f"{name}, rests and queues"


def check_gangs(state: MachineState) -> None:
    """Assert that gangs have as many slots as their trials may have, and no slot is in two."""
    for trial in state.trials.values():
        if trial.holds_slots:
            _check_gang(state, trial)
    _check_slots(state)


def _check_gang(state: MachineState, trial: Trial) -> None:
    allocation = trial.allocation
    assert allocation is not None
    experiment = state.experiments[trial.experiment_id]
    least, most = experiment.sizes.for_batch(trial.hparams)
    is_whole = max(1, least) <= len(allocation.slots) <= max(1, most)
    assert is_whole or experiment.is_unmanaged, f"{allocation.id}: half a gang"
    assert allocation.agent_id == allocation.parts[0].agent_id
    ranks = [rank for part in allocation.parts for rank in part.ranks]
    assert sorted(ranks) == [*range(len(allocation.slots))], f"{allocation.id}: not each rank once"
    for part in allocation.parts:
        agents = {allocation.agent_ids[rank] for rank in part.ranks}
        assert len({state.process_of(agent) for agent in agents}) == 1, f"{part} is not one part"
    assert allocation.living_parts, f"{allocation.id} holds slots without ranks"
    leaves_by_itself = trial.target_is_last and trial.is_resting
    if trial.state is not State.ACTIVE and not leaves_by_itself:
        assert allocation.state is AllocationState.STOPPING, f"{allocation.id} was not told to go"


def _check_slots(state: MachineState) -> None:
    taken: set[tuple[str | None, int]] = set()
    for trial in state.trials.values():
        if trial.allocation is not None and trial.allocation.holds_slots:
            allocation = trial.allocation
            for agent_id, slot in zip(allocation.agent_ids, allocation.slots, strict=True):
                place = (agent_id, slot.id)
                assert slot.id < 0 or place not in taken, f"slot {place} is in two gangs"
                taken.add(place)
    for name in state.pool_configs:
        for gang in Queue(state).snapshot(name).running.values():
            own = {(part.agent_id, slot) for part in gang.parts for slot in part.slot_ids}
            claimed = {(part.agent_id, slot) for part in gang.becomes for slot in part.slot_ids}
            assert not (claimed - own) & taken, f"{gang.request.id} becomes what others hold"
            taken |= claimed


def _check_queue(state: MachineState, queue: Queue) -> None:
    fresh = Queue(state)
    for name in state.pool_configs:
        pool = queue.snapshot(name)
        assert pool == fresh.snapshot(name), f"pool {name} is not what the state says"
        decisions = decide(pool, _LATER)
        assert not decisions.starts, f"pool {name}: a trial waits although it may start"
        assert not decisions.preemptions, f"pool {name}: a trial should have been asked to leave"
        asked = [one for one in decisions.resizes if one.for_request_id]
        assert not asked, f"pool {name}: a trial should have been asked to give slots back"


def _listed(indexes: Indexes, state: MachineState) -> object:
    """Return all that look-ups return."""
    agents = {*state.agents, *state.lost_agents}
    agents |= {
        agent_id
        for trial in state.trials.values()
        if trial.allocation is not None
        for agent_id in trial.allocation.agent_ids
    }
    return (
        {agent_id: [t.id for t in indexes.trials_on_agent(agent_id)] for agent_id in agents},
        indexes.any_holds_slots,
        {i: [trial.id for trial in indexes.unfinished_trials(i)] for i in state.experiments},
        {each.key: indexes.find_submitted(each.key) for each in state.experiments.values()},
    )
