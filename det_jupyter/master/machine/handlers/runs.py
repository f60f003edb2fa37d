"""Reports of agents and ranks about a run. Those about a run without slots change nothing.

GangStarted                     of each part; then all RankStarted: RUNNING
RanksSeen                       of each part that was asked to leave: shown with the trial
ValidationReported              the trial's metric; the search may stop the trial
LossReported                    whether the training diverges
CheckpointSaved                 where the next run starts from
CheckpointDeleted               by the trial's own code: the next run starts from another
TargetReached                   the search decides whether the trial goes on, rests or ends
RunEnded, RankFailure           stored: they are evaluated when the gang has exited
Notice                          shown with the trial
RanksStalled                    shown with the trial; ends the run if `hang.action` says so
TraceSaved, ChangeMade          stored with the order that they answer
LogMatched                      a line by which a log policy forbids another try, or an agent
GangExited                      of one part: if it has failed, the other parts are killed
                                of all: ENDED; outcome.py decides what it means for the trial

A gang has a part on each agent process that carries ranks of it. It holds its slots until all
parts have exited, or are lost with their agents: a trial never has two gangs.
"""

from __future__ import annotations

from operator import attrgetter
from typing import assert_never

from det_jupyter.contract.messages import (
    AllocationState,
    CheckpointRef,
    CheckpointView,
    Cut,
    FailureView,
    GangExited,
    GangStarted,
    KillGang,
    RanksSeen,
    RankView,
    State,
)
from det_jupyter.contract.messages.device_faults import RESET
from det_jupyter.contract.run.journal import (
    ChangeMade,
    CheckpointDeleted,
    CheckpointSaved,
    FirstStep,
    Notice,
    RankFailure,
    RanksStalled,
    RankStarted,
    RunEnded,
    TargetReached,
    TraceSaved,
)
from det_jupyter.contract.values.alerts import AlertKind
from det_jupyter.contract.values.text import count, printable
from det_jupyter.errors import Conflict
from det_jupyter.master.machine.model.allocations import Allocation, GangPart
from det_jupyter.master.machine.model.events import (
    LogMatched,
    LossReported,
    RecordArrived,
    ValidationReported,
)
from det_jupyter.master.machine.model.lifecycle import is_stopping, move, move_allocation
from det_jupyter.master.machine.model.state import Trial
from det_jupyter.master.machine.model.turn import Turn
from det_jupyter.master.machine.rules.alerts import raise_alert
from det_jupyter.master.machine.rules.full_disks import note_room, wait_for_room
from det_jupyter.master.machine.rules.gang_ends import merge_ends
from det_jupyter.master.machine.rules.giving_up import end_given_up
from det_jupyter.master.machine.rules.hanging import failure_of_hang, forget_hang, record_stall
from det_jupyter.master.machine.rules.log_policies import agent_of, is_applied, policy_label
from det_jupyter.master.machine.rules.outcome import (
    MAX_LOSSES,
    Outcome,
    count_repeats,
    failure_after_losses,
    find_failure,
    judge,
    will_repeat,
)
from det_jupyter.master.machine.rules.placing import close_run, queue_trial
from det_jupyter.master.machine.rules.retention import delete_uploaded, record_deleted
from det_jupyter.master.machine.rules.searching import (
    finish_trial,
    on_target_reached,
    report_validation,
)
from det_jupyter.master.machine.rules.trial_metrics import record_divergence, record_metric
from det_jupyter.master.machine.rules.trial_orders import (
    close_profiles,
    record_change,
    record_trace,
)
from det_jupyter.searcher import ExitReason

_LINE_SHOWN = 200  # characters of a matching line
_MAX_NOTICES = 10  # kept per trial; the first ones are the most informative
# Outcomes after which the trial is queued again, or may be.
_RUNS_AGAIN = (Outcome.PREEMPTED, Outcome.LOST, Outcome.FAILED)


def on_gang_started(turn: Turn, event: GangStarted) -> None:
    """Store the processes of a gang's ranks."""
    found = turn.state.find_allocation(event.allocation_id)
    if found is None:
        return
    trial, allocation = found
    part = _started_part(allocation, sorted(process.rank for process in event.ranks))
    if part.exited is not None:  # a repeated report
        return
    part.is_started, part.note, part.interface = True, event.note, event.interface
    others = [rank for rank in allocation.ranks if rank.rank not in part.ranks]
    started = [
        RankView.built_from(process, slot=allocation.slots[process.rank])
        for process in event.ranks
    ]
    allocation.ranks = sorted([*others, *started], key=attrgetter("rank"))
    allocation.launch_note = _launch_note(allocation)
    _update_ranks(trial, allocation)
    turn.touch(trial, f"run {allocation.run}: ranks started")


def _started_part(allocation: Allocation, ranks: list[int]) -> GangPart:
    """Return the part whose ranks have started.

    One process may do the work of all ranks of its computer, so ranks may be missing.
    """
    part = allocation.part_with(ranks)
    is_part = part is not None and part.ranks[0] in ranks and set(ranks) <= set(part.ranks)
    if part is None or not is_part or len(set(ranks)) < len(ranks):
        expected = " or ".join(
            f"{part.ranks[0]} and others up to {part.ranks[-1]}" for part in allocation.parts
        )
        raise Conflict(
            f"allocation {allocation.id}: got ranks {ranks}, expected {expected}, each once"
        )
    return part


def _launch_note(allocation: Allocation) -> str:
    """Return how the ranks were started, by agent where that differs."""
    notes = {part.agent_id: part.note for part in allocation.parts if part.is_started}
    if len(set(notes.values())) == 1:
        return next(iter(notes.values()))
    return "; ".join(f"agent {agent_id}: {note}" for agent_id, note in notes.items())


def _update_ranks(trial: Trial, allocation: Allocation) -> None:
    for rank in allocation.ranks:
        if up := allocation.ranks_up.get(rank.rank):
            rank.backend, rank.device = up.backend, up.device
    are_started = all(part.is_started for part in allocation.parts)
    all_up = are_started and all(r.rank in allocation.ranks_up for r in allocation.ranks)
    if all_up and allocation.state is AllocationState.STARTING:
        move_allocation(trial, AllocationState.RUNNING)


def on_ranks_seen(turn: Turn, event: RanksSeen) -> None:
    """Store where the ranks of a part are that was asked to leave."""
    found = turn.state.find_allocation(event.allocation_id)
    if found is None or found[1].state is not AllocationState.STOPPING:
        return
    trial, allocation = found
    if beyond := [rank for rank in event.places if rank >= len(allocation.slots)]:
        raise Conflict(
            f"allocation {allocation.id}: got ranks {beyond}, "
            f"expected some of 0 to {len(allocation.slots) - 1}"
        )
    allocation.places = allocation.places | event.places
    times = [allocation.checked_at, event.checked_at]
    allocation.checked_at = max((at for at in times if at is not None), default=None)
    allocation.saving_since = allocation.saving_since or event.saving_since
    turn.touch(trial)


def on_record_arrived(turn: Turn, event: RecordArrived) -> None:
    """Handle a record from a rank's journal."""
    found = turn.state.find_allocation(event.allocation_id)
    if found is None:
        return
    trial, allocation = found
    if event.rank >= len(allocation.slots):
        raise Conflict(
            f"allocation {allocation.id}: got rank {event.rank}, "
            f"expected one of 0 to {len(allocation.slots) - 1}"
        )
    record = event.record
    match record:
        case RankStarted():
            allocation.ranks_up[event.rank] = record
            _update_ranks(trial, allocation)
        case FirstStep():
            allocation.first_step_at = allocation.first_step_at or record.at
            trial.losses = 0
        case CheckpointSaved():
            _add_checkpoint(turn, trial, record)
            note_room(turn, trial)
            # After it was asked to leave: nothing is lost, whatever happens until it exits.
            allocation.is_for_rest |= allocation.state is AllocationState.STOPPING
        case CheckpointDeleted():
            if any(part.is_remote for part in allocation.parts):
                delete_uploaded(turn, trial, record.uuid)
            else:
                record_deleted(turn, [record.uuid])
        case TargetReached():
            on_target_reached(turn, trial, record)
        case RunEnded():
            if allocation.run_end is None or event.rank <= allocation.run_end_rank:
                allocation.run_end, allocation.run_end_rank = record, event.rank
        case RankFailure():
            allocation.failures.append(record)
        case Notice():
            kept = trial.alarms if record.is_alarm else trial.notices
            if record.text not in kept and len(kept) < _MAX_NOTICES:
                kept.append(record.text)
            if record.is_alarm:
                experiment = turn.state.experiment(trial.experiment_id)
                text = f"trial {trial.id}: {record.text}"
                raise_alert(turn, AlertKind.NAN, experiment, text, trial)
        case RanksStalled():
            record_stall(turn, trial, allocation, event.rank, record)
        case TraceSaved():
            record_trace(trial, event.rank, record)
        case ChangeMade():
            record_change(trial, record)
        case _:
            assert_never(record)
    turn.touch(trial)


def _add_checkpoint(turn: Turn, trial: Trial, record: CheckpointSaved) -> None:
    known = turn.state.checkpoints.get(record.uuid)
    if known is not None and known.trial_id != trial.id:
        raise Conflict(f"checkpoint {record.uuid:.50} is one of trial {known.trial_id} already")
    turn.state.checkpoints[record.uuid] = CheckpointView.built_from(
        record,
        experiment_id=trial.experiment_id,
        trial_id=trial.id,
        created_at=record.at,
        searcher_metric=trial.metrics_by_step.get(record.steps_completed),
    )
    turn.changes.checkpoints.add(record.uuid)
    trial.checkpoints.append(record.uuid)
    trial.latest_checkpoint = CheckpointRef.built_from(record)


def on_validation_reported(turn: Turn, event: ValidationReported) -> None:
    """Store the searcher's metric of a validation, and report it to the search."""
    found = turn.state.find_allocation(event.allocation_id)
    if found is None:
        return
    trial, _ = found
    if event.metric is not None:
        record_metric(turn, trial, event.steps_completed, event.metric)
        _set_metric_of_checkpoints(turn, trial, event.steps_completed, event.metric)
        _raise_divergence(turn, trial)
    turn.touch(trial)
    if not is_stopping(trial.state):
        report_validation(turn, trial, time=event.time, metric=event.metric)


def on_loss_reported(turn: Turn, event: LossReported) -> None:
    """Store whether a training loss diverges."""
    found = turn.state.find_allocation(event.allocation_id)
    if found is not None:
        record_divergence(
            found[0], "training", event.metric, event.steps_completed - 1, event.value
        )
        turn.touch(found[0])
        _raise_divergence(turn, found[0])


def _raise_divergence(turn: Turn, trial: Trial) -> None:
    if trial.divergence is not None:
        experiment = turn.state.experiment(trial.experiment_id)
        text = f"trial {trial.id}: {trial.divergence}"
        raise_alert(turn, AlertKind.NAN, experiment, text, trial)


def _set_metric_of_checkpoints(
    turn: Turn, trial: Trial, steps_completed: int, metric: float
) -> None:
    """Set the metric of checkpoints of this step, which may be saved before the validation."""
    for uuid in reversed(trial.checkpoints):
        checkpoint = turn.state.checkpoints[uuid]
        if checkpoint.steps_completed < steps_completed:
            return
        if checkpoint.steps_completed == steps_completed:
            checkpoint.searcher_metric = metric
            turn.changes.checkpoints.add(uuid)


def on_log_matched(turn: Turn, event: LogMatched) -> None:
    """Apply a log policy to the run that printed a matching line; see log_policies.py."""
    found = turn.state.find_allocation(event.allocation_id)
    if found is None or is_applied(found[1], event.action, event.rank):
        return
    trial, allocation = found
    line = event.line[:_LINE_SHOWN] + "…" * (len(event.line) > _LINE_SHOWN)
    policy = policy_label(turn.state.experiment(trial.experiment_id).settings, event.pattern)
    agent_id = agent_of(allocation, event.rank)
    if event.action == "cancel_retries":
        allocation.is_hopeless = True
        match = f"fits what rank {event.rank} printed: {printable(line)}"
        trial.message = f"{policy} (cancel_retries) {match}"
    elif agent_id is not None:
        allocation.excludes.append(agent_id)
    turn.touch(trial, f"{policy}: {event.action}")


def on_gang_exited(turn: Turn, event: GangExited) -> None:
    """Store the end of a part of a gang. After the last one, end the run."""
    found = turn.state.find_allocation(event.allocation_id)
    if found is None:
        return
    trial, allocation = found
    part = allocation.part_with(event.exit_codes)
    if part is None:
        raise Conflict(
            f"allocation {allocation.id}: got exit codes of ranks {sorted(event.exit_codes)}, "
            f"expected those of one of its parts: {[part.ranks for part in allocation.parts]}"
        )
    if part.exited is not None:  # a repeated report
        return
    is_ending = allocation.has_failed_part  # then the others were killed
    part.exited = event
    if event.cut is not None:
        _note_cut(turn, trial, allocation, event.cut)
    _note_lost_devices(turn, trial, allocation, event)
    others = allocation.living_parts
    if others:
        turn.touch(trial, f"run {allocation.run}: ranks {part.ranks} have exited")
        if part.has_failed and not is_ending:
            turn.send_to_parts(others, KillGang(allocation_id=allocation.id))
    elif turn.state.experiment(trial.experiment_id).is_given_up:
        end_given_up(turn, trial)
    else:
        _end_run(turn, trial, allocation, merge_ends(allocation))


def _note_cut(turn: Turn, trial: Trial, allocation: Allocation, cut: Cut) -> None:
    """Place no gang on two agents that cannot reach each other; show why the run has ended."""
    if cut.pair <= turn.state.agents.keys():  # one may have been lost, for the same reason
        turn.state.add_cut(cut, turn.now)
        turn.queue.mark_changed()
    notice = f"run {allocation.run} ended, which is no failure: {cut.sentence}"
    if len(trial.notices) < _MAX_NOTICES:
        trial.notices.append(notice)


def _note_lost_devices(
    turn: Turn, trial: Trial, allocation: Allocation, event: GangExited
) -> None:
    """Give out slots no more whose devices are lost; show why the run has ended."""
    for rank, fault in event.faults.items():
        if not fault.is_lost or rank not in event.exit_codes:
            continue
        agent_id = allocation.agent_ids[rank]
        agent = turn.state.agents.get(agent_id)
        if agent is not None:
            agent.lost[allocation.slots[rank].id] = fault
            turn.queue.mark_changed()
        notice = f"run {allocation.run} ended, which is no failure: {fault} on agent {agent_id}"
        if len(trial.notices) < _MAX_NOTICES:
            trial.notices.append(f"{notice}; {RESET}")


def _end_run(turn: Turn, trial: Trial, allocation: Allocation, event: GangExited) -> None:
    """Release the slots of a gang that has exited; queue or end its trial, by the outcome."""
    close_profiles(trial)
    outcome = judge(trial, allocation, event)
    close_run(turn, trial, allocation)
    move_allocation(trial, AllocationState.ENDED)
    forget_hang(turn, trial, allocation)
    turn.touch(trial, f"run {allocation.run} ended: {outcome}")
    if outcome is not Outcome.FAILED:
        trial.message = ""  # a log policy may have set it; the run has not failed
    if outcome in _RUNS_AGAIN:
        trial.avoids = sorted({*trial.avoids, *allocation.excludes})
    match outcome:
        case Outcome.ENDED_AS_ASKED:
            _on_ended_as_asked(turn, trial, allocation)
        case Outcome.COMPLETED | Outcome.INVALID:
            _on_completed(turn, trial, allocation)
        case Outcome.PREEMPTED:
            _queue_if_active(turn, trial)
        case Outcome.LOST:
            _on_lost(turn, trial, allocation, event)
        case Outcome.FAILED:
            _on_failed(turn, trial, allocation, event)
        case _:
            assert_never(outcome)


def _on_ended_as_asked(turn: Turn, trial: Trial, allocation: Allocation) -> None:
    if trial.state is not State.STOPPING_COMPLETED:
        finish_trial(turn, trial, ExitReason.CANCELED)
        return
    if allocation.failures:  # results are saved: the trial completes, its message is the error
        trial.message = f"failed after its last batch: {allocation.failures[0].error}"
    finish_trial(turn, trial, ExitReason.COMPLETED)


def _on_completed(turn: Turn, trial: Trial, allocation: Allocation) -> None:
    assert allocation.run_end is not None
    has_reached_last_target = trial.is_resting and trial.target_is_last
    if allocation.run_end.reason == "completed" and not has_reached_last_target:
        _queue_if_active(turn, trial)  # the search set another target while it was exiting
        return
    prefix = "invalid hyperparameters: " if allocation.run_end.reason == "invalid_hp" else ""
    trial.message = prefix + allocation.run_end.message
    move(trial, State.STOPPING_COMPLETED)
    finish_trial(turn, trial, ExitReason(allocation.run_end.reason))


def _on_lost(turn: Turn, trial: Trial, allocation: Allocation, event: GangExited) -> None:
    if allocation.first_step_at is None:
        trial.losses += 1
    if trial.losses < MAX_LOSSES:
        _queue_if_active(turn, trial)
        return
    trial.failure = failure_after_losses(event)
    _give_up(turn, trial, trial.failure.error)


def _on_failed(turn: Turn, trial: Trial, allocation: Allocation, event: GangExited) -> None:
    previous = trial.failure
    failure, is_final = find_failure(allocation, event)
    if allocation.ended_for is not None:
        failure = failure_of_hang(allocation.ended_for, event.at)
        settings = turn.state.experiment(trial.experiment_id).settings
        is_final = settings.hang.action == "kill"
    failure = _with_agent(turn, allocation, failure)
    saved = allocation.starts_from != trial.latest_checkpoint
    trial.failure = count_repeats(failure, previous, since_checkpoint=saved)
    if is_stopping(trial.state):
        _give_up(turn, trial, f"failed when it was canceled: {trial.failure.error}")
        return
    if allocation.is_hopeless:  # the trial's message says why
        _give_up(turn, trial, f"{trial.failure.error}; not tried again: {trial.message}")
        return
    if trial.failure.no_room and not is_final:
        if trial.state is State.ACTIVE and not trial.is_resting:
            wait_for_room(turn, trial, trial.failure, has_saved=saved)
        return
    trial.full_disks = 0
    if not is_final and will_repeat(trial.failure):
        times = "twice" if trial.failure.times == 2 else f"{trial.failure.times} times"
        error = trial.failure.error.removesuffix(".")
        _end_as_failed(turn, trial, f"{error}. Failed {times} with the same error.")
        return
    max_restarts = turn.state.experiment(trial.experiment_id).settings.max_restarts
    if not is_final and trial.restarts < max_restarts:
        trial.restarts += 1
        _queue_if_active(turn, trial)
        return
    _give_up(turn, trial, trial.failure.error)


def _with_agent(turn: Turn, allocation: Allocation, failure: FailureView) -> FailureView:
    """Return a failure with the agent in its message if the disk of another computer was full."""
    agent_id = agent_of(allocation, failure.rank) if failure.rank is not None else None
    agent = turn.state.agents.get(agent_id or "")
    if not failure.no_room or agent is None or not agent.is_remote:
        return failure
    return failure.model_copy(
        update={"error": f"on agent {agent_id}: {failure.error}", "full_on_agent": agent_id}
    )


def _give_up(turn: Turn, trial: Trial, error: str) -> None:
    restarts = f" (after {count(trial.restarts, 'restart')})" if trial.restarts else ""
    _end_as_failed(turn, trial, f"{error}{restarts}")


def _end_as_failed(turn: Turn, trial: Trial, message: str) -> None:
    trial.message = message
    move(trial, State.STOPPING_ERROR)
    finish_trial(turn, trial, ExitReason.ERRORED)


def _queue_if_active(turn: Turn, trial: Trial) -> None:
    if trial.state is State.ACTIVE and not trial.is_resting:
        queue_trial(turn, trial)
