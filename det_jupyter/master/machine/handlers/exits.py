"""The ends of runs, and what follows for their trials.

GangExited      of one part: if it has failed, the other parts are killed
                of the last part: ENDED; rules/outcome.py decides what follows for the trial

A gang has a part on each agent process that carries ranks of it. It holds its slots until all
parts have exited, or are lost with their agents: a trial never has two gangs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from det_jupyter.contract.messages import (
    AllocationState,
    Cut,
    FailureView,
    GangExited,
    KillGang,
    State,
)
from det_jupyter.contract.messages.device_faults import RESET
from det_jupyter.contract.values.text import count
from det_jupyter.errors import Conflict
from det_jupyter.master.machine.model.allocations import Allocation
from det_jupyter.master.machine.model.lifecycle import is_stopping, move, move_allocation
from det_jupyter.master.machine.model.state import Trial
from det_jupyter.master.machine.model.turn import Turn
from det_jupyter.master.machine.rules.decided import go_on_resized
from det_jupyter.master.machine.rules.full_disks import wait_for_room
from det_jupyter.master.machine.rules.gang_ends import cause_part, ends_by_others, merge_ends
from det_jupyter.master.machine.rules.giving_up import end_given_up
from det_jupyter.master.machine.rules.hanging import failure_of_hang, forget_hang
from det_jupyter.master.machine.rules.log_policies import agent_of
from det_jupyter.master.machine.rules.outcome import (
    LOST_BY_OTHERS,
    MAX_LOSSES,
    GangOutcome,
    count_repeats,
    failure_after_losses,
    find_failure,
    judge,
    loss_text,
    lost_run,
    will_repeat,
)
from det_jupyter.master.machine.rules.placing import close_run, queue_trial
from det_jupyter.master.machine.rules.recovering import add_recovery, recovery_of
from det_jupyter.master.machine.rules.searching import (
    finish_trial,
)
from det_jupyter.master.machine.rules.trial_orders import (
    close_profiles,
)
from det_jupyter.searcher import ExitReason

# Outcomes after which the trial is queued again, or may be.
_RUNS_AGAIN = (GangOutcome.PREEMPTED, GangOutcome.LOST, GangOutcome.FAILED)


def on_gang_exited(turn: Turn, event: GangExited) -> None:
    """Store the end of a part of a gang. After the last one, end the run."""
    found = turn.state.find_allocation(event.allocation_id)
    if found is None:
        return
    trial, allocation = found
    if turn.state.experiment(trial.experiment_id).is_unmanaged:  # it may be taken in later
        turn = replace(turn, now=min(turn.now, event.at))
    part = allocation.part_with(event.exit_codes)
    if part is None:
        raise Conflict(
            f"allocation {allocation.id}: got exit codes of ranks {sorted(event.exit_codes)}, "
            f"expected those of one of its parts: {[part.ranks for part in allocation.parts]}"
        )
    if part.exited is not None:  # a repeated report
        return
    # The failure of another part: then the others were killed.
    is_ending = allocation.has_failed_part
    part.exited = event
    if event.cut is not None:
        _note_cut(turn, trial, allocation, event.cut)
    _note_lost_devices(turn, trial, allocation, event)
    others = allocation.living_parts
    if others:
        turn.touch(trial, f"run {allocation.run}: ranks {part.ranks} have exited")
        if part.has_failed and not is_ending:
            lets_save = ends_by_others(allocation, part)
            turn.send_to_parts(others, KillGang(allocation_id=allocation.id, lets_save=lets_save))
    elif turn.state.experiment(trial.experiment_id).is_given_up:
        end_given_up(turn, trial)
    else:
        _end_run(turn, trial, allocation, merge_ends(allocation))


def _note_cut(turn: Turn, trial: Trial, allocation: Allocation, cut: Cut) -> None:
    """Record that two agents cannot reach each other, so that no gang spans them; show why."""
    if cut.pair <= turn.state.agents.keys():  # an agent may have been lost for the same reason
        turn.state.add_cut(cut, turn.now)
        turn.queue.mark_changed()
    trial.add_notice(f"run {allocation.run} ended, which is no failure: {cut.sentence}")


def _note_lost_devices(
    turn: Turn, trial: Trial, allocation: Allocation, event: GangExited
) -> None:
    """Withhold slots whose devices are lost; show why the run has ended."""
    for rank, fault in event.faults.items():
        if not fault.is_lost or rank not in event.exit_codes:
            continue
        agent_id = allocation.agent_ids[rank]
        agent = turn.state.agents.get(agent_id)
        if agent is not None:
            agent.lost[allocation.slots[rank].id] = fault
            turn.queue.mark_changed()
        what = f"{fault} on agent {agent_id}; {RESET}"
        trial.add_notice(f"run {allocation.run} ended, which is no failure: {what}")


def _end_run(turn: Turn, trial: Trial, allocation: Allocation, event: GangExited) -> None:
    """Release the slots of a gang that has exited; queue or end its trial, by the outcome."""
    close_profiles(trial)
    outcome = judge(trial, allocation, event)
    is_unmanaged = turn.state.experiment(trial.experiment_id).is_unmanaged
    if is_unmanaged and outcome is GangOutcome.COMPLETED and set(event.exit_codes.values()) != {0}:
        outcome = GangOutcome.FAILED  # each rank ends by itself, so one does not speak for all
    lost_with = loss_text(event, cause_part(allocation).agent_id)
    close_run(turn, trial, allocation)
    move_allocation(trial, AllocationState.ENDED)
    forget_hang(turn, trial, allocation)
    why = f" ({lost_with})" if outcome is GangOutcome.LOST else ""
    turn.touch(trial, f"run {allocation.run} ended: {outcome}{why}")
    if outcome is not GangOutcome.FAILED:
        trial.message = ""  # a message of a log policy does not apply, as the run has not failed
    if outcome in _RUNS_AGAIN and is_unmanaged:
        trial.failure, _ = find_failure(allocation, event)
        _end_as_failed(turn, trial, trial.failure.error)
        return
    if outcome in _RUNS_AGAIN:
        trial.avoids = sorted({*trial.avoids, *allocation.excludes})
    match outcome:
        case GangOutcome.ENDED_AS_ASKED:
            _on_ended_as_asked(turn, trial, allocation)
        case GangOutcome.COMPLETED | GangOutcome.INVALID:
            _on_completed(turn, trial, allocation)
        case GangOutcome.PREEMPTED:
            if not (_may_run(trial) and go_on_resized(turn, trial, allocation)):
                _queue_if_active(turn, trial)
        case GangOutcome.LOST:
            _on_lost(turn, trial, allocation, event, lost_with)
        case GangOutcome.FAILED:
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
    is_unmanaged = turn.state.experiment(trial.experiment_id).is_unmanaged
    is_last = is_unmanaged or (trial.is_resting and trial.target_is_last)
    if allocation.run_end.reason == "completed" and not is_last:
        _queue_if_active(turn, trial)  # the search has set another target during the exit
        return
    prefix = "invalid hyperparameters: " if allocation.run_end.reason == "invalid_hp" else ""
    trial.message = prefix + allocation.run_end.message
    move(trial, State.STOPPING_COMPLETED)
    finish_trial(turn, trial, ExitReason(allocation.run_end.reason))


def _on_lost(
    turn: Turn, trial: Trial, allocation: Allocation, event: GangExited, what: str
) -> None:
    may_be_its_doing = event.loss not in LOST_BY_OTHERS
    if allocation.first_step_at is None and may_be_its_doing:
        trial.losses.append(lost_run(allocation.run, event, what))
    if len(trial.losses) < MAX_LOSSES:
        _queue_if_active(turn, trial)
        return
    trial.failure = failure_after_losses(trial.losses)
    _give_up(turn, trial, trial.failure.error)


def _on_failed(turn: Turn, trial: Trial, allocation: Allocation, event: GangExited) -> None:
    previous = trial.failure
    failure, is_final = find_failure(allocation, event)
    if allocation.ended_for is not None:
        failure = failure_of_hang(allocation.ended_for, event.at)
        settings = turn.state.experiment(trial.experiment_id).settings
        is_final = settings.hang.action == "kill"
    failure = _with_agent(turn, allocation, failure)
    recovery = recovery_of(trial, allocation, failure, event.ended_at)
    failure = failure.model_copy(update={"is_survived": recovery is not None})
    saved = allocation.starts_from != trial.latest_checkpoint
    trial.failure = count_repeats(failure, previous, since_checkpoint=saved)
    if is_stopping(trial.state):
        _give_up(turn, trial, f"failed when it was canceled: {trial.failure.error}")
        return
    if allocation.is_hopeless:  # the trial's message has the reason
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
    if recovery is not None and add_recovery(trial, recovery):
        _queue_if_active(turn, trial)
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
    if _may_run(trial):
        queue_trial(turn, trial)


def _may_run(trial: Trial) -> bool:
    return trial.state is State.ACTIVE and not trial.is_resting
