"""What users ask of a trial that trains: a profile, another learning rate."""

from __future__ import annotations

from det_jupyter.contract.messages import (
    AllocationState,
    Change,
    ChangeTrial,
    Profile,
    ProfileTrial,
    ProfileView,
    State,
    TrialChangeView,
)
from det_jupyter.contract.messages.rank_orders import to_text
from det_jupyter.contract.messages.status import in_words
from det_jupyter.errors import ConfigError, Conflict, Problem
from det_jupyter.master.machine.model.state import Allocation, Trial
from det_jupyter.master.machine.model.turn import Turn
from det_jupyter.master.machine.rules.orders import MAX_CHANGES, MAX_PROFILES, pass_orders


def on_profile_trial(turn: Turn, event: ProfileTrial) -> None:
    """Order a profile from the ranks."""
    trial = turn.state.trial(event.trial_id)
    allocation = _running(trial)
    num_ranks = len(allocation.slots)
    if wrong := [rank for rank in event.ranks if rank >= num_ranks]:
        known = "only rank 0" if num_ranks == 1 else f"ranks 0 to {num_ranks - 1}"
        raise ConfigError(
            [Problem("profile", f"ranks: got {wrong[0]}, but trial {trial.id} has {known}")]
        )
    if any(not profile.is_over for profile in trial.profiles):
        raise Conflict(f"trial {trial.id} is being profiled already; try again in a moment")
    profile = Profile.built_from(event, ranks=sorted(set(event.ranks)))
    view = ProfileView(id=turn.state.seq, at=turn.now, profile=profile)
    trial.profiles = [*trial.profiles, view][-MAX_PROFILES:]
    turn.touch(trial, f"profile of {profile.steps} batches requested")
    pass_orders(turn, trial)


def _running(trial: Trial) -> Allocation:
    allocation = trial.allocation
    if allocation is None or allocation.state is not AllocationState.RUNNING:
        is_active = trial.state is State.ACTIVE
        now = "it does not run now" if is_active else f"it is {in_words(trial.state)}"
        why = trial.waiting_for or now
        raise Conflict(f"trial {trial.id} cannot be profiled: {why}; only one that trains can")
    return allocation


def on_change_trial(turn: Turn, event: ChangeTrial) -> None:
    """Note a change, and order it from the ranks; a trial that waits makes it when it starts."""
    trial = turn.state.trial(event.trial_id)
    if trial.state is not State.ACTIVE:
        raise Conflict(
            f"trial {trial.id} is {in_words(trial.state)} and cannot be changed; "
            "only one that is active can"
        )
    if len(trial.changes) >= MAX_CHANGES:
        raise Conflict(f"trial {trial.id} was changed {MAX_CHANGES} times, which is the limit")
    change = Change.built_from(event)
    view = TrialChangeView(id=turn.state.seq, at=turn.now, change=change)
    trial.changes = [*trial.changes, view]
    turn.touch(trial, f"change requested: {to_text(change)}")
    pass_orders(turn, trial)
