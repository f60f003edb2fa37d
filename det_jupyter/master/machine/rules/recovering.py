"""Recoveries: a rank was killed, and the others have saved the last step (docs/recovery.md).

    the run has ended     a recovery if the trial's latest checkpoint is that of its last step
    the next first step   the time that it took is known; an alert

A recovery loses no more than the step that was interrupted, so it is not one of `max_restarts`.
After MAX_RECOVERIES of a trial, further ones are. A failure that repeats itself ends the trial
before (outcome.py).
"""

from __future__ import annotations

from det_jupyter.contract.messages import FailureView, RecoveryView
from det_jupyter.contract.values.alerts import AlertKind
from det_jupyter.master.machine.model.allocations import Allocation
from det_jupyter.master.machine.model.state import Trial
from det_jupyter.master.machine.model.turn import Turn
from det_jupyter.master.machine.rules.alerts import raise_alert

MAX_RECOVERIES = 100  # of a trial
_MOST_KEPT = 10


def recovery_of(
    trial: Trial, allocation: Allocation, failure: FailureView, ended_at: float | None
) -> RecoveryView | None:
    """Return the recovery of a failed run, if it is one.

    Args:
        ended_at: When the rank of the failure has ended; None: when its gang has.
    """
    saved, latest = allocation.last_step, trial.latest_checkpoint
    code = failure.exit_code
    if saved is None or failure.rank is None or code is None or code >= 0:
        return None
    if latest is None or latest.steps_completed != saved.steps_completed:
        return None  # it could not be stored
    return RecoveryView.built_from(
        failure, at=ended_at or failure.at, signal=-code, repeats=saved.repeats
    )


def add_recovery(trial: Trial, recovery: RecoveryView) -> bool:
    """Record a recovery; return False if there were too many: then it counts as a restart."""
    trial.recoveries = [*trial.recoveries, recovery][-_MOST_KEPT:]
    trial.num_recoveries += 1
    return trial.num_recoveries <= MAX_RECOVERIES


def note_first_step(turn: Turn, trial: Trial, at: float) -> None:
    """Record that a trial trains again, at the time of a run's first step."""
    if not any(one.went_on_s is None for one in trial.recoveries):
        return
    trial.recoveries = [
        one
        if one.went_on_s is not None
        else one.model_copy(update={"went_on_s": max(0.0, at - one.at)})
        for one in trial.recoveries
    ]
    sentence = trial.recoveries[-1].sentence
    turn.touch(trial, sentence)
    experiment = turn.state.experiment(trial.experiment_id)
    raise_alert(turn, AlertKind.RECOVERED, experiment, f"trial {trial.id}: {sentence}", trial)
