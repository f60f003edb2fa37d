"""Trials that wait for free space on a full disk.

    its ranks wait at a batch           RoomReported: the trial holds its slots; no work is lost
    a run has ended because of it       `wait_for_room`: the trial holds no slots, and is queued
                                        again by RoomFound, when there may be room

Neither case counts as a restart or changes the state of the experiment. If a user pauses the
experiment, the trial waits for `activate`, like any other trial.
"""

from __future__ import annotations

from det_jupyter.contract.messages import FailureView, RoomReported, RoomWait, State
from det_jupyter.contract.values.alerts import AlertKind
from det_jupyter.master.machine.model.events import RoomFound
from det_jupyter.master.machine.model.state import Trial
from det_jupyter.master.machine.model.turn import Turn
from det_jupyter.master.machine.rules.alerts import raise_alert, withdraw
from det_jupyter.master.machine.rules.placing import queue_trial

# Pause before a trial is queued again, doubled by each run in a row that ends for the same reason.
_PAUSES_S = (4.0, 300.0)


def on_room_reported(turn: Turn, event: RoomReported) -> None:
    """Store whether the ranks of a run wait for free space."""
    found = turn.state.find_allocation(event.allocation_id)
    if found is None or found[0].room == event.wait:
        return
    if event.wait is not None:
        _begin(turn, found[0], event.wait)
        return
    found[0].room = None
    turn.touch(found[0], "there is room on a disk")
    note_room(turn, found[0])


def note_room(turn: Turn, trial: Trial) -> None:
    """Withdraw the experiment's alert of a full disk, unless one of its trials still waits.

    Called when ranks do not wait any more, and when a checkpoint was saved.
    """
    experiment = turn.state.experiment(trial.experiment_id)
    if AlertKind.DISK not in experiment.alerted:
        return
    if all(each.room is None for each in turn.indexes.unfinished_trials(experiment.id)):
        withdraw(experiment, AlertKind.DISK)
        turn.touch(experiment)


def on_room_found(turn: Turn, event: RoomFound) -> None:
    """Queue a trial again whose last run has ended because of a full disk."""
    trial = turn.state.trials.get(event.trial_id)
    if trial is not None and waits_without_slots(trial):
        queue_trial(turn, trial)


def waits_without_slots(trial: Trial) -> bool:
    """Return whether a trial waits without slots for free space on a disk."""
    is_kept = trial.holds_slots or trial.is_resting
    return trial.room is not None and trial.state is State.ACTIVE and not is_kept


def wait_for_room(turn: Turn, trial: Trial, failure: FailureView, *, has_saved: bool) -> None:
    """Make a trial whose run has ended because of a full disk wait for free space.

    Args:
        turn: The event being handled.
        trial: The trial, without slots.
        failure: The failure of the run.
        has_saved: Whether the run has saved a checkpoint.
    """
    trial.full_disks = 1 if has_saved else trial.full_disks + 1
    first_s, longest_s = _PAUSES_S
    pause_s = min(longest_s, first_s * 2.0 ** min(trial.full_disks - 1, 20))
    wait = RoomWait(
        folder=failure.full_folder,
        agent_id=failure.full_on_agent,
        since=turn.now,
        try_at=turn.now + pause_s,
    )
    _begin(turn, trial, wait)


def _begin(turn: Turn, trial: Trial, wait: RoomWait) -> None:
    trial.room = wait
    turn.touch(trial, "waits for room on a disk")
    experiment = turn.state.experiment(trial.experiment_id)
    text = f"trial {trial.id} {wait.sentence}"
    raise_alert(turn, AlertKind.DISK, experiment, text, trial)
