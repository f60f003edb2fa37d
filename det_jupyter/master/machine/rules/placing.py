"""Allocates slots to trials and releases them: queues, starts and stops runs.

               queue_trial        start_trial               stop_run
    (none) ──────────► QUEUED ────────────────► STARTING … ──────────► STOPPING
                          └─────────────────────────────────────────► ENDED   (it held no slots)

A trial that is STOPPING holds its slots until its gang has exited (handlers/exits.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from det_jupyter.contract.messages import (
    AllocationState,
    CloseRun,
    ExtendGang,
    GangPlan,
    KillGang,
    SignalGang,
    SizeChange,
    SlotView,
    StartGang,
    State,
)
from det_jupyter.master.machine.model.allocations import Allocation, GangPart
from det_jupyter.master.machine.model.commands import TruncateMetrics
from det_jupyter.master.machine.model.lifecycle import is_stopping, move, move_allocation
from det_jupyter.master.machine.model.state import Experiment, Trial
from det_jupyter.master.machine.model.turn import Turn
from det_jupyter.master.machine.rules.trial_metrics import drop_later_metrics
from det_jupyter.master.machine.rules.trial_orders import changes_of
from det_jupyter.scheduler.model import (
    AgentPart,
    Placement,
)

_MOST_SIZES = 100  # changes of size that are stored per trial
# The slot of the rank of a trial without slots.
_NO_SLOT = SlotView(id=-1, kind="cpu", index=0, name="CPU")


def queue_trial(turn: Turn, trial: Trial) -> None:
    """Create an allocation for a trial's next run, and queue it for slots."""
    trial.runs += 1
    trial.room = None
    last = trial.allocation
    trial.allocation = Allocation(
        id=f"{trial.experiment_id}.{trial.id}.{trial.runs}",
        run=trial.runs,
        queued_at=turn.now,
        resized_with=last.resized_with if last is not None else "",
    )
    turn.touch(trial, f"run {trial.runs} queued")


def start_trial(
    turn: Turn, trial: Trial, placement: Placement, why: str = "so many were free"
) -> None:
    """Start the gang of a trial that is queued.

    Args:
        turn: The event being handled.
        trial: The trial.
        placement: Its slots.
        why: Why an elastic trial has this number of slots.
    """
    allocation = trial.allocation
    assert allocation is not None
    of_agents = _in_rank_order(turn, placement.parts)
    allocation.agent_ids, allocation.slots = _assign_slots(turn, of_agents)
    allocation.parts = _make_parts(turn, allocation.agent_ids)
    allocation.promised = []
    allocation.is_backfill = placement.is_backfill
    if turn.state.experiment(trial.experiment_id).sizes.is_elastic:
        steps = trial.latest_checkpoint.steps_completed if trial.latest_checkpoint else 0
        num = len(allocation.slots)
        size = SizeChange(at=turn.now, slots=num, steps_completed=steps, reason=why)
        trial.sizes = [*trial.sizes, size][-_MOST_SIZES:]
    _begin_run(turn, trial, allocation, begins_at_checkpoint=True)
    send_start(turn, trial, allocation, allocation.parts)


def begin_unmanaged(turn: Turn, trial: Trial, agent_id: str, slots: list[SlotView]) -> None:
    """Begin the run of a trial whose ranks a user has started.

    Args:
        turn: The event being handled.
        trial: A trial that is queued.
        agent_id: Stands for the agent; no agent has this name.
        slots: The devices of the ranks.
    """
    allocation = trial.allocation
    assert allocation is not None
    allocation.agent_ids, allocation.slots = [agent_id] * len(slots), slots
    allocation.parts = [GangPart(agent_id=agent_id, is_remote=True, ranks=list(range(len(slots))))]
    # Without a checkpoint of ours, the code may go on at any step.
    has_one = trial.latest_checkpoint is not None
    _begin_run(turn, trial, allocation, begins_at_checkpoint=has_one)


def _begin_run(
    turn: Turn, trial: Trial, allocation: Allocation, *, begins_at_checkpoint: bool
) -> None:
    """Begin the run of a queued trial, whose allocation has its slots and parts.

    Args:
        begins_at_checkpoint: Whether its metrics are reported again from the latest checkpoint
            on, or from the beginning if there is none.
    """
    allocation.agent_id = allocation.agent_ids[0]
    allocation.starts_from = trial.latest_checkpoint
    experiment = turn.state.experiment(trial.experiment_id)
    allocation.started_at = turn.now
    if experiment.held_since is None:
        experiment.held_since = turn.now
        turn.touch(experiment)
    trial.waiting_for = None
    move_allocation(trial, AllocationState.STARTING)
    where = " and ".join(dict.fromkeys(allocation.agent_ids))
    turn.touch(trial, f"run {allocation.run} starts on {where}")
    if trial.runs > 1 and begins_at_checkpoint:
        _truncate_metrics(turn, trial, allocation)
    allocation.planned_target = trial.target
    allocation.planned_is_last = trial.target_is_last
    allocation.planned_best = experiment.best_metric
    allocation.planned_orders = changes_of(trial)


def _in_rank_order(turn: Turn, parts: tuple[AgentPart, ...]) -> list[AgentPart]:
    """Return the slots by agent; agents that can have the chief of a gang come first.

    The other agents connect to the chief's agent, and agents of this computer accept no
    connections.
    """
    agents = turn.state.agents

    def key(part: AgentPart) -> tuple[bool, bool]:
        agent = agents[part.agent_id]
        return (not agent.port, not agent.is_remote)

    return sorted(parts, key=key)


def _make_parts(turn: Turn, agent_ids: list[str]) -> list[GangPart]:
    """Return the parts of a gang: its ranks, grouped by the process of their agents."""
    parts: dict[str, GangPart] = {}
    for rank, agent_id in enumerate(agent_ids):
        process = turn.state.process_of(agent_id)
        part = GangPart(agent_id=agent_id, is_remote=bool(process), ranks=[])
        parts.setdefault(process, part).ranks.append(rank)
    return list(parts.values())


def _assign_slots(turn: Turn, parts: list[AgentPart]) -> tuple[list[str], list[SlotView]]:
    """Return the agent and the slot of each rank, in the order of ranks."""
    agent_ids: list[str] = []
    slots: list[SlotView] = []
    for part in parts:
        of_agent = {slot.id: slot for slot in turn.state.agents[part.agent_id].slots}
        given = [of_agent[slot_id] for slot_id in part.slot_ids] or [_NO_SLOT]
        agent_ids += [part.agent_id] * len(given)
        slots += given
    return agent_ids, slots


def send_start(
    turn: Turn, trial: Trial, allocation: Allocation, parts: Iterable[GangPart]
) -> None:
    """Command the agents of these parts of a gang to start them. Idempotent."""
    experiment = turn.state.experiment(trial.experiment_id)
    plan = make_plan(experiment, trial, allocation)
    turn.send_to_parts(parts, StartGang(plan=plan))


def make_plan(experiment: Experiment, trial: Trial, allocation: Allocation) -> GangPlan:
    """Return the plan of a gang. It is the same for each part and each call."""
    target, is_last = allocation.planned_target, allocation.planned_is_last
    assert target is not None, "a trial that runs has a target"
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
        best_metric=allocation.planned_best,
        target=target,
        target_is_last=trial.target_is_last if is_last is None else is_last,
        sampling_interval_s=None if profiling.enabled is False else profiling.sampling_interval,
        orders=[*allocation.planned_orders],
        bucket=experiment.bucket,
    )


def _truncate_metrics(turn: Turn, trial: Trial, allocation: Allocation) -> None:
    """Delete metrics after the checkpoint that a run starts from, as they are reported again."""
    steps = allocation.starts_from.steps_completed if allocation.starts_from is not None else 0
    drop_later_metrics(turn, trial, steps)
    turn.commands.append(
        TruncateMetrics(
            experiment_id=trial.experiment_id,
            trial_id=trial.id,
            run=allocation.run,
            steps_completed=steps,
            cause=turn.state.seq,
        )
    )


def add_held_time(turn: Turn, trial: Trial, allocation: Allocation) -> None:
    """Add the time for which a run held slots to its trial and experiment, as it releases them."""
    if allocation.started_at is None:
        return
    experiment = turn.state.experiment(trial.experiment_id)
    held_s = max(0.0, turn.now - allocation.started_at)
    trial.held_s += held_s
    trial.slot_seconds += sum(slot.id >= 0 for slot in allocation.slots) * held_s
    others = (each for each in turn.indexes.unfinished_trials(experiment.id) if each is not trial)
    if experiment.held_since is not None and not any(each.holds_slots for each in others):
        experiment.held_s += max(0.0, turn.now - experiment.held_since)
        experiment.held_since = None
        turn.touch(experiment)


def stop_run(turn: Turn, trial: Trial, *, at_once: bool) -> None:
    """Remove a trial from the queue, or command its gang to stop.

    Args:
        turn: The event being handled.
        trial: A trial in any state; there is no effect if it neither waits nor runs.
        at_once: Kill the ranks; else they save their state first.
    """
    allocation = trial.allocation
    if allocation is None or allocation.state is AllocationState.ENDED:
        trial.room = None
        return
    if allocation.state is AllocationState.QUEUED:
        move_allocation(trial, AllocationState.ENDED)
        trial.waiting_for = None
        turn.touch(trial)
        return
    allocation.becomes, allocation.resized_because = {}, ""
    if allocation.state is not AllocationState.STOPPING:
        allocation.asked_at = turn.now
        move_allocation(trial, AllocationState.STOPPING)
    if at_once:
        allocation.asked_at = None  # killed at once: no deadline for saving
    turn.touch(trial)
    send_stop(turn, trial, allocation, allocation.living_parts, at_once=at_once)


def send_target(turn: Turn, trial: Trial, allocation: Allocation) -> None:
    """Send a gang its trial's current target. Idempotent."""
    assert trial.target is not None
    command = ExtendGang(
        allocation_id=allocation.id, target=trial.target, target_is_last=trial.target_is_last
    )
    turn.send_to_chief(allocation, command)


def send_stop(
    turn: Turn,
    trial: Trial,
    allocation: Allocation,
    parts: Iterable[GangPart],
    *,
    at_once: bool,
) -> None:
    """Command parts of a gang to save their state and leave, or to end at once. Idempotent.

    The chief reads the signal for all ranks; each agent applies the deadline to its own ranks.
    """
    if at_once:
        is_killed = trial.state is State.STOPPING_KILLED
        kill = KillGang(allocation_id=allocation.id, gives_up_uploads=is_killed)
        turn.send_to_parts(parts, kill)
        return
    timeout_s = float(turn.state.experiment(trial.experiment_id).settings.preemption_timeout)
    signal = SignalGang(allocation_id=allocation.id, signal="preempt", timeout_s=timeout_s)
    turn.send_to_parts(parts, signal)


def close_run(turn: Turn, trial: Trial, allocation: Allocation) -> None:
    """Command the agents to close a run whose ranks have all exited; count its time."""
    add_held_time(turn, trial, allocation)
    for agent_id, slot in zip(allocation.agent_ids, allocation.slots, strict=True):
        if agent := turn.state.agents.get(agent_id):
            agent.note_freed([slot.id], turn.now)
    trial.room = None
    turn.send_to_parts(allocation.parts, CloseRun(allocation_id=allocation.id))
    for part in allocation.parts:
        part.exited = None  # not needed any more, and it may contain a traceback


def pause_experiment(turn: Turn, experiment: Experiment) -> None:
    """Pause an active experiment: its trials save their state and leave.

    The experiment and its trials are PAUSING, and PAUSED when they hold no slots
    (`complete_pauses`).
    """
    move(experiment, State.PAUSING)
    turn.touch(experiment)
    for trial in trials_not_stopping(turn, experiment):
        move(trial, State.PAUSING)
        turn.touch(trial, "asked to pause")
        stop_run(turn, trial, at_once=False)


def complete_pauses(turn: Turn) -> None:
    """Set the state PAUSED for all that is PAUSING and holds no slots. Called after each event."""
    changed = [turn.state.trials.get(trial_id) for trial_id in sorted(turn.changes.trials)]
    for trial in filter(None, changed):
        if trial.state is State.PAUSING and not trial.holds_slots:
            move(trial, State.PAUSED)
            turn.touch(trial)
    affected = turn.changes.experiments | {t.experiment_id for t in changed if t is not None}
    for experiment_id in sorted(affected):
        experiment = turn.state.experiments.get(experiment_id)
        if experiment is None or experiment.state is not State.PAUSING:
            continue
        trials = turn.indexes.unfinished_trials(experiment_id)
        if not any(trial.holds_slots for trial in trials):
            move(experiment, State.PAUSED)
            turn.touch(experiment)


def trials_not_stopping(turn: Turn, experiment: Experiment) -> list[Trial]:
    """Return the trials that are neither over nor stopping."""
    trials = turn.indexes.unfinished_trials(experiment.id)
    return [trial for trial in trials if not is_stopping(trial.state)]
