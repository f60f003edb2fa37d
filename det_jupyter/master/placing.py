"""Slots given to trials and taken back: queue, place, start, and ask to leave.

                queue            place_waiting            make_leave
    (nothing) ────────► QUEUED ───────────────► STARTING … ────────► STOPPING
                           └────────────────────────────────────────► ENDED   (it held nothing)

A trial that leaves holds its slots until its gang has exited (run_events.py).
"""

from __future__ import annotations

from det_jupyter.master.commands import TruncateMetrics
from det_jupyter.master.lifecycle import move_allocation
from det_jupyter.master.metrics import forget_metrics
from det_jupyter.master.plans import make_plan
from det_jupyter.master.queue import agents_as_they_are, to_request
from det_jupyter.master.state import Allocation, Trial
from det_jupyter.master.turn import Turn
from det_jupyter.scheduler import AgentSlots, Placement, explain, schedule
from det_jupyter.wire import AllocationState, ExtendGang, KillGang, SignalGang, StartGang

# Each change of a reason is something to store and to send: of a long queue the front matters.
_EXPLAINED = 64
_FAR_BEHIND = f"waits for its turn: {_EXPLAINED} trials or more were made before it"


def queue(turn: Turn, trial: Trial) -> None:
    """Let a trial wait for slots, for its next run."""
    trial.runs += 1
    trial.allocation = Allocation(
        id=f"{trial.experiment_id}.{trial.id}.{trial.runs}",
        run=trial.runs,
        queued_at=turn.now,
    )
    trial.is_resting = False
    turn.touch(trial, f"run {trial.runs} queued")


def place_waiting(turn: Turn) -> None:
    """Start whoever fits, and say anew why each of the others waits: it may lie in others."""
    waiting = turn.roster.waiting()
    if not waiting:
        return
    agents = agents_as_they_are(turn.state, turn.roster)
    if any(agent.free for agent in agents) and _start_who_fits(turn, waiting, agents):
        agents = agents_as_they_are(turn.state, turn.roster)
    _explain_waiting(turn, agents)


def _start_who_fits(turn: Turn, waiting: list[Trial], agents: list[AgentSlots]) -> bool:
    by_request = {trial.allocation.id: trial for trial in waiting if trial.allocation is not None}
    requests = [to_request(trial, turn.experiment(trial.experiment_id)) for trial in waiting]
    placements = schedule(agents, requests)
    for placement in placements:
        _start(turn, by_request[placement.request_id], placement)
    return bool(placements)


def _explain_waiting(turn: Turn, agents: list[AgentSlots]) -> None:
    reasons: dict[int, str] = {}  # by how many slots are asked for
    waiting = turn.roster.waiting()
    for trial in waiting[_EXPLAINED:]:
        if trial.waiting_for != _FAR_BEHIND:
            trial.waiting_for = _FAR_BEHIND
            turn.touch(trial)
    for trial in waiting[:_EXPLAINED]:
        slots = turn.experiment(trial.experiment_id).slots_per_trial
        if slots not in reasons:
            reasons[slots] = explain(slots, agents)
        if reasons[slots] != trial.waiting_for:
            trial.waiting_for = reasons[slots]
            turn.touch(trial)


def _start(turn: Turn, trial: Trial, placement: Placement) -> None:
    allocation = trial.allocation
    assert allocation is not None
    slots = {slot.id: slot for slot in turn.state.agents[placement.agent_id].slots}
    allocation.agent_id = placement.agent_id
    allocation.slots = [slots[slot_id] for slot_id in placement.slot_ids]
    allocation.starts_from = trial.latest_checkpoint
    allocation.planned_target = trial.target
    allocation.started_at = turn.now
    trial.waiting_for = None
    move_allocation(trial, AllocationState.STARTING)
    turn.touch(trial, f"run {allocation.run} starts on {placement.agent_id}")
    if trial.runs > 1:
        _forget_later_metrics(turn, trial, allocation)
    order_start(turn, trial, allocation)


def order_start(turn: Turn, trial: Trial, allocation: Allocation) -> None:
    """Tell the agent to start the gang that holds its slots; safe to repeat."""
    assert allocation.agent_id is not None
    experiment = turn.experiment(trial.experiment_id)
    plan = make_plan(experiment, trial, allocation)
    turn.tell(allocation.agent_id, StartGang(plan=plan))


def _forget_later_metrics(turn: Turn, trial: Trial, allocation: Allocation) -> None:
    """What was reported after the checkpoint will be reported again."""
    steps = allocation.starts_from.steps_completed if allocation.starts_from is not None else 0
    kept = {step: value for step, value in trial.metrics_by_step.items() if step <= steps}
    forget_metrics(turn, trial, kept)
    turn.commands.append(
        TruncateMetrics(
            experiment_id=trial.experiment_id,
            trial_id=trial.id,
            steps_completed=steps,
            cause=turn.state.seq,
        )
    )


def make_leave(turn: Turn, trial: Trial, *, at_once: bool) -> None:
    """Take a trial out of the queue, or tell its ranks to go."""
    allocation = trial.allocation
    if allocation is None or allocation.state is AllocationState.ENDED:
        return
    if allocation.state is AllocationState.QUEUED:
        move_allocation(trial, AllocationState.ENDED)
        trial.waiting_for = None
        turn.touch(trial)
        return
    if allocation.state is not AllocationState.STOPPING:
        move_allocation(trial, AllocationState.STOPPING)
        turn.touch(trial)
    order_leave(turn, trial, allocation, at_once=at_once)


def order_extend(turn: Turn, trial: Trial, allocation: Allocation) -> None:
    """Tell the gang how far its trial trains now; safe to repeat."""
    assert allocation.agent_id is not None
    command = ExtendGang(
        allocation_id=allocation.id, target=trial.target, target_is_last=trial.target_is_last
    )
    turn.tell(allocation.agent_id, command)


def order_leave(turn: Turn, trial: Trial, allocation: Allocation, *, at_once: bool) -> None:
    """Tell the agent that the gang shall leave, after saving its state or at once; repeatable."""
    assert allocation.agent_id is not None
    if at_once:
        turn.tell(allocation.agent_id, KillGang(allocation_id=allocation.id))
        return
    timeout_s = float(turn.experiment(trial.experiment_id).config["preemption_timeout"])
    signal = SignalGang(allocation_id=allocation.id, signal="preempt", timeout_s=timeout_s)
    turn.tell(allocation.agent_id, signal)
