"""Reports of agents and ranks about a run. Reports about a run without slots change nothing.

GangStarted, RankStarted        from all parts and ranks: the run is RUNNING
RanksSeen                       where ranks are that were asked to leave: shown with the trial
ValidationReported              the trial's metric; the search may stop the trial
LossReported                    whether the training diverges
CheckpointSaved                 where the next run starts from
CheckpointDeleted               by the trial's code: the next run starts from another one
TargetReached                   the search decides whether the trial goes on, rests or ends
RunEnded, RankFailure           stored: they are evaluated when the gang has exited
Notice                          shown with the trial
RanksStalled                    shown with the trial; ends the run if `hang.action` says so
TraceSaved, ChangeMade          stored with the order that they answer
LogMatched                      a line for which a log policy forbids a retry, or an agent

How a run ends is in exits.py.
"""

from __future__ import annotations

from operator import attrgetter
from typing import assert_never

from det_jupyter.contract.messages import (
    AllocationState,
    CheckpointRef,
    CheckpointView,
    GangStarted,
    RanksSeen,
    RankView,
)
from det_jupyter.contract.run.journal import (
    ChangeMade,
    CheckpointDeleted,
    CheckpointSaved,
    FirstStep,
    LastStepSaved,
    Notice,
    RankFailure,
    RanksStalled,
    RankStarted,
    RunEnded,
    TargetReached,
    TraceSaved,
)
from det_jupyter.contract.values.alerts import AlertKind
from det_jupyter.contract.values.text import printable
from det_jupyter.errors import Conflict
from det_jupyter.master.machine.model.allocations import Allocation, GangPart
from det_jupyter.master.machine.model.events import (
    LogMatched,
    LossReported,
    RecordArrived,
    ValidationReported,
)
from det_jupyter.master.machine.model.lifecycle import is_stopping, move_allocation
from det_jupyter.master.machine.model.state import Trial
from det_jupyter.master.machine.model.turn import Turn
from det_jupyter.master.machine.rules.alerts import raise_alert
from det_jupyter.master.machine.rules.full_disks import note_room
from det_jupyter.master.machine.rules.hanging import record_stall
from det_jupyter.master.machine.rules.log_policies import agent_of, is_applied, policy_label
from det_jupyter.master.machine.rules.recovering import note_first_step
from det_jupyter.master.machine.rules.retention import (
    delete_replaced,
    delete_uploaded,
    record_deleted,
)
from det_jupyter.master.machine.rules.searching import (
    on_target_reached,
    report_validation,
)
from det_jupyter.master.machine.rules.trial_metrics import record_divergence, record_metric
from det_jupyter.master.machine.rules.trial_orders import (
    record_change,
    record_trace,
)

_LINE_SHOWN = 200  # characters of a matching line


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
    """Return how the ranks were started; if that differs, for each agent."""
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
    """Store that the code checks for requests; of a part that was asked to leave, also where."""
    found = turn.state.find_allocation(event.allocation_id)
    if found is None or not found[1].holds_slots:
        return
    trial, allocation = found
    if beyond := [rank for rank in event.places if rank >= len(allocation.slots)]:
        raise Conflict(
            f"allocation {allocation.id}: got ranks {beyond}, "
            f"expected some of 0 to {len(allocation.slots) - 1}"
        )
    times = [allocation.checked_at, event.checked_at]
    allocation.checked_at = max((at for at in times if at is not None), default=None)
    if allocation.state is AllocationState.STOPPING:
        allocation.places = allocation.places | event.places
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
            trial.losses = []
            note_first_step(turn, trial, record.at)
        case CheckpointSaved():
            _add_checkpoint(turn, trial, allocation, record)
            note_room(turn, trial)
            # A checkpoint after the request to leave: no work is lost, even if the run fails
            # later.
            allocation.is_for_rest |= allocation.state is AllocationState.STOPPING
            if record.on_request:
                allocation.saved_on_request = record.uuid
        case CheckpointDeleted():
            is_in_bucket = turn.state.experiment(trial.experiment_id).bucket
            if is_in_bucket or any(part.is_remote for part in allocation.parts):
                delete_uploaded(turn, trial, record.uuid)
            else:
                record_deleted(turn, [record.uuid])
        case LastStepSaved():
            known = allocation.last_step  # ranks on several computers save by themselves
            if known is None or record.steps_completed >= known.steps_completed:
                allocation.last_step = record
            if known is not None:
                _keep_newest(turn, trial, [known.steps_completed, record.steps_completed])
        case TargetReached():
            on_target_reached(turn, trial, record)
        case RunEnded():
            if allocation.run_end is None or event.rank <= allocation.run_end_rank:
                allocation.run_end, allocation.run_end_rank = record, event.rank
        case RankFailure():
            allocation.failures.append(record)
        case Notice() if record.trainer:
            trial.plain_trainer = record.trainer
        case Notice():
            trial.add_notice(record.text, is_alarm=record.is_alarm)
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


def _add_checkpoint(
    turn: Turn, trial: Trial, allocation: Allocation, record: CheckpointSaved
) -> None:
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
    latest = trial.latest_checkpoint
    if latest is not None and latest != allocation.starts_from and known is None:
        last = turn.state.checkpoints.get(latest.uuid)
        # A rank that survived another one has saved the newer one: its journal came first.
        is_older = record.steps_completed < latest.steps_completed
        if last is not None and is_older and record.at < last.created_at:
            trial.checkpoints.insert(len(trial.checkpoints) - 1, record.uuid)
            return
    trial.checkpoints.append(record.uuid)
    trial.latest_checkpoint = CheckpointRef.built_from(record)


def _keep_newest(turn: Turn, trial: Trial, steps: list[int]) -> None:
    """Continue from the newer one of the checkpoints after these steps, and delete the other one.

    Of two after the same step, the later one is kept. Ranks of one computer may be a step behind
    those of another one, and save later.
    """
    found = [turn.state.checkpoints[uuid] for uuid in trial.checkpoints[-2:]]
    found.sort(key=lambda one: one.steps_completed)
    if [one.steps_completed for one in found] == sorted(steps):
        older, newer = found
        trial.checkpoints[-2:] = [older.uuid, newer.uuid]
        trial.latest_checkpoint = CheckpointRef.built_from(newer)
        delete_replaced(turn, turn.state.experiment(trial.experiment_id), older.uuid)


def on_validation_reported(turn: Turn, event: ValidationReported) -> None:
    """Store the searcher metric of a validation, and report it to the search."""
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
    """Set the metric of checkpoints at this step, which may be saved before the validation.

    A checkpoint keeps its first metric: later ones may belong to another model, as in
    transformers' evaluation after `load_best_model_at_end`.
    """
    for uuid in reversed(trial.checkpoints):
        checkpoint = turn.state.checkpoints[uuid]
        if checkpoint.steps_completed < steps_completed:
            return
        if checkpoint.steps_completed == steps_completed and checkpoint.searcher_metric is None:
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
