"""Slots given to trials and taken back: queue, place, start, and ask to leave.

                queue            carry_out                make_leave
    (nothing) ────────► QUEUED ───────────────► STARTING … ────────► STOPPING
                           └────────────────────────────────────────► ENDED   (it held nothing)

A trial that leaves holds its slots until its gang has exited (handlers/runs.py).
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from det_jupyter.contract.messages import (
    AllocationState,
    ExtendGang,
    GangPlan,
    KillGang,
    SignalGang,
    SlotView,
    StartGang,
    State,
)
from det_jupyter.master.machine.model.commands import TruncateMetrics
from det_jupyter.master.machine.model.lifecycle import is_stopping, move, move_allocation
from det_jupyter.master.machine.model.state import Allocation, Experiment, Trial
from det_jupyter.master.machine.model.turn import Turn, on_behalf_of
from det_jupyter.master.machine.rules.trial_metrics import forget_metrics
from det_jupyter.master.machine.rules.trial_orders import changes_of
from det_jupyter.scheduler.model import AgentPart, Decisions, Placement, Preemption, Promise

_NO_SLOT = SlotView(id=-1, kind="cpu", index=0, name="CPU")  # where a trial without slots runs


def queue(turn: Turn, trial: Trial) -> None:
    """Queue a trial for slots, for its next run."""
    trial.runs += 1
    trial.allocation = Allocation(
        id=f"{trial.experiment_id}.{trial.id}.{trial.runs}",
        run=trial.runs,
        queued_at=turn.now,
    )
    turn.touch(trial, f"run {trial.runs} queued")


def carry_out(turn: Turn, decisions: Decisions) -> None:
    """Start the trials that may start, and make those leave that have to make room."""
    for placement in decisions.starts:
        with _of(turn, placement.request_id):
            _start(turn, placement)
    for preemption in decisions.preemptions:
        with _of(turn, preemption.request_id):
            _preempt(turn, preemption)
    for promise in decisions.promises:
        with _of(turn, promise.request_id):
            _promise(turn, promise)


def _of(turn: Turn, request_id: str) -> AbstractContextManager[None]:
    """Attribute what raises inside to the experiment of the request, not of the event."""
    return on_behalf_of(turn.state.trial_of(request_id).experiment_id)


def _start(turn: Turn, placement: Placement) -> None:
    trial = turn.state.trial_of(placement.request_id)
    allocation = trial.allocation
    assert allocation is not None
    allocation.agent_id = placement.parts[0].agent_id
    allocation.agent_ids, allocation.slots = _places(turn, placement.parts)
    allocation.promised = []
    allocation.is_backfill = placement.is_backfill
    allocation.starts_from = trial.latest_checkpoint
    allocation.planned_target = trial.target
    allocation.started_at = turn.now
    experiment = turn.state.experiment(trial.experiment_id)
    if experiment.held_since is None:
        experiment.held_since = turn.now
        turn.touch(experiment)
    trial.waiting_for = None
    move_allocation(trial, AllocationState.STARTING)
    where = " and ".join(part.agent_id for part in placement.parts)
    turn.touch(trial, f"run {allocation.run} starts on {where}")
    if trial.runs > 1:
        _forget_later_metrics(turn, trial, allocation)
    order_start(turn, trial, allocation)


def _places(turn: Turn, parts: tuple[AgentPart, ...]) -> tuple[list[str], list[SlotView]]:
    """Return the agent and the slot of each rank."""
    agent_ids: list[str] = []
    slots: list[SlotView] = []
    for part in parts:
        known = {slot.id: slot for slot in turn.state.agents[part.agent_id].slots}
        given = [known[slot_id] for slot_id in part.slot_ids] or [_NO_SLOT]
        agent_ids += [part.agent_id] * len(given)
        slots += given
    return agent_ids, slots


def _preempt(turn: Turn, preemption: Preemption) -> None:
    """Ask a trial to save its state and leave, so that another one can start."""
    trial = turn.state.trial_of(preemption.request_id)
    assert trial.allocation is not None
    taker = turn.state.trial_of(preemption.for_request_id)
    trial.allocation.preempted_by = taker.experiment_id
    turn.touch(trial, f"makes room for {preemption.for_request_id}")
    make_leave(turn, trial, at_once=False)


def _promise(turn: Turn, promise: Promise) -> None:
    """Note the agents where others were asked to leave for a trial; none: no longer."""
    trial = turn.state.trial_of(promise.request_id)
    assert trial.allocation is not None
    trial.allocation.promised = list(promise.agents)
    turn.touch(trial)


def order_start(turn: Turn, trial: Trial, allocation: Allocation) -> None:
    """Command the agent to start the gang that holds its slots; safe to repeat."""
    experiment = turn.state.experiment(trial.experiment_id)
    turn.order(allocation, StartGang(plan=make_plan(experiment, trial, allocation)))


def make_plan(experiment: Experiment, trial: Trial, allocation: Allocation) -> GangPlan:
    """Return what a gang is started with; made again later, it may have a farther target."""
    assert trial.target is not None, "a trial that is to run has a target"
    profiling = experiment.settings.profiling
    return GangPlan(
        allocation_id=allocation.id,
        experiment_id=experiment.id,
        trial_id=trial.id,
        run=allocation.run,
        python=experiment.python,
        cwd=experiment.cwd,
        slots=allocation.slots,
        agent_ids=allocation.agent_ids,
        config=experiment.config,
        hparams=trial.hparams,
        seed=trial.seed,
        capsule=experiment.capsule,
        checkpoint=allocation.starts_from,
        warm_start=trial.warm_start,
        best_metric=experiment.best_metric,
        target=trial.target,
        target_is_last=trial.target_is_last,
        sampling_interval_s=None if profiling.enabled is False else profiling.sampling_interval,
        orders=[*changes_of(trial)],
    )


def _forget_later_metrics(turn: Turn, trial: Trial, allocation: Allocation) -> None:
    """What was reported after the checkpoint will be reported again."""
    steps = allocation.starts_from.steps_completed if allocation.starts_from is not None else 0
    forget_metrics(turn, trial, steps)
    turn.commands.append(
        TruncateMetrics(
            experiment_id=trial.experiment_id,
            trial_id=trial.id,
            steps_completed=steps,
            cause=turn.state.seq,
        )
    )


def count_held(turn: Turn, trial: Trial, allocation: Allocation) -> None:
    """Add up the time in which slots were held, of a run that gives them back now."""
    if allocation.started_at is None:
        return
    experiment = turn.state.experiment(trial.experiment_id)
    held_s = max(0.0, turn.now - allocation.started_at)
    trial.held_s += held_s
    trial.slot_seconds += sum(slot.id >= 0 for slot in allocation.slots) * held_s
    others = (each for each in turn.indexes.living(experiment.id) if each is not trial)
    if experiment.held_since is not None and not any(each.holds_slots for each in others):
        experiment.held_s += max(0.0, turn.now - experiment.held_since)
        experiment.held_since = None
        turn.touch(experiment)


def make_leave(turn: Turn, trial: Trial, *, at_once: bool) -> None:
    """Take a trial out of the queue, or command its ranks to leave, or to end at once."""
    allocation = trial.allocation
    if allocation is None or allocation.state is AllocationState.ENDED:
        return
    if allocation.state is AllocationState.QUEUED:
        move_allocation(trial, AllocationState.ENDED)
        trial.waiting_for = None
        turn.touch(trial)
        return
    if allocation.state is not AllocationState.STOPPING:
        allocation.asked_at = turn.now
        move_allocation(trial, AllocationState.STOPPING)
    if at_once:
        allocation.asked_at = None  # it is not waited for any more
    turn.touch(trial)
    order_leave(turn, trial, allocation, at_once=at_once)


def order_extend(turn: Turn, trial: Trial, allocation: Allocation) -> None:
    """Send the gang its trial's present target; safe to repeat."""
    assert trial.target is not None
    command = ExtendGang(
        allocation_id=allocation.id, target=trial.target, target_is_last=trial.target_is_last
    )
    turn.order(allocation, command)


def order_leave(turn: Turn, trial: Trial, allocation: Allocation, *, at_once: bool) -> None:
    """Command the gang to leave, after saving its state or at once; safe to repeat."""
    if at_once:
        turn.order(allocation, KillGang(allocation_id=allocation.id))
        return
    timeout_s = float(turn.state.experiment(trial.experiment_id).settings.preemption_timeout)
    signal = SignalGang(allocation_id=allocation.id, signal="preempt", timeout_s=timeout_s)
    turn.order(allocation, signal)


def pause(turn: Turn, experiment: Experiment) -> None:
    """Have the trials of an active experiment save their state and leave, and wait."""
    move(experiment, State.PAUSED)
    turn.touch(experiment)
    for trial in trials_that_go_on(turn, experiment):
        move(trial, State.PAUSED)
        turn.touch(trial, "asked to pause")
        make_leave(turn, trial, at_once=False)


def trials_that_go_on(turn: Turn, experiment: Experiment) -> list[Trial]:
    """Return the trials that are neither over nor about to be."""
    trials = turn.indexes.living(experiment.id)
    return [trial for trial in trials if not is_stopping(trial.state)]
