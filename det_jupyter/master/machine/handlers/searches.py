"""Changes of a search and of its trials: by users, and by answers of samplers and pruners."""

from __future__ import annotations

from det_jupyter.config import merge
from det_jupyter.contract.messages import (
    AllocationState,
    Change,
    ChangeSearch,
    ChangeTrial,
    KillTrial,
    Profile,
    ProfileTrial,
    ProfileView,
    SearchChangeView,
    State,
    TrialChangeView,
)
from det_jupyter.contract.messages.rank_orders import to_text
from det_jupyter.contract.messages.status import in_words
from det_jupyter.errors import ConfigError, Conflict, Problem
from det_jupyter.master.machine.model.allocations import Allocation
from det_jupyter.master.machine.model.events import HparamsSampled, TrialJudged
from det_jupyter.master.machine.model.lifecycle import TRANSITIONS, is_stopping, move
from det_jupyter.master.machine.model.state import Experiment, Trial
from det_jupyter.master.machine.model.turn import Turn
from det_jupyter.master.machine.rules.placing import stop_run
from det_jupyter.master.machine.rules.searching import apply_actions, end_if_drained, finish_trial
from det_jupyter.master.machine.rules.trial_orders import MAX_CHANGES, MAX_PROFILES, send_orders
from det_jupyter.searcher import ExitReason

_MOST_CHANGES = 100  # changes that are stored per experiment


def on_change_search(turn: Turn, event: ChangeSearch) -> None:
    """Change the limits or hyperparameters of a running search."""
    experiment = turn.state.experiment(event.experiment_id)
    if not experiment.state.is_open:
        raise Conflict(
            f"experiment {experiment.id} is {in_words(experiment.state)}: its search is over; "
            "submit a new one, or let a trial of it train on with trial.train_to(...)"
        )
    complete = event
    if event.hyperparameters is not None:  # the event has only the changed ones
        before = {"hyperparameters": experiment.config["hyperparameters"]}
        merged = merge(before, {"hyperparameters": event.hyperparameters})
        complete = event.model_copy(update=merged)
    actions = turn.searches.of(experiment).change(complete)
    _add_to_history(turn, experiment, event)
    _update_config(turn, experiment, complete)
    turn.touch(experiment)
    apply_actions(turn, experiment, actions)


def _add_to_history(turn: Turn, experiment: Experiment, event: ChangeSearch) -> None:
    """Add a change of the search to its history, with the values before the change."""
    after = event.given()
    before = {key: experiment.config["searcher"].get(key) for key in after}
    if event.hyperparameters is not None:
        old = experiment.config["hyperparameters"]
        before["hyperparameters"] = {name: old.get(name) for name in event.hyperparameters}
    change = SearchChangeView(at=turn.now, before=before, after=after)
    experiment.search_changes = [*experiment.search_changes, change][-_MOST_CHANGES:]


def _update_config(turn: Turn, experiment: Experiment, event: ChangeSearch) -> None:
    """Update the effective configuration: users read it, and the search is restored from it."""
    changed = event.given()
    changed.pop("hyperparameters", None)
    turn.change_section(experiment, "searcher", changed)
    if event.hyperparameters is not None:
        config = experiment.config | {"hyperparameters": event.hyperparameters}
        turn.reconfigure(experiment, config)


def on_hparams_sampled(turn: Turn, event: HparamsSampled) -> None:
    """Create the trial that was sampled; if the sampler failed, end the experiment."""
    experiment = _find_searching(turn, event.experiment_id)
    if experiment is None:
        return
    if event.hparams is None:
        _end_in_error(turn, experiment, "sampler", event.error)
        return
    search = turn.searches.of(experiment)
    apply_actions(turn, experiment, search.on_sampled(event.index, event.hparams))


def _find_searching(turn: Turn, experiment_id: int) -> Experiment | None:
    experiment = turn.state.experiments.get(experiment_id)
    is_searching = experiment is not None and experiment.state.is_open
    return experiment if is_searching else None


def _end_in_error(turn: Turn, experiment: Experiment, key: str, error: str) -> None:
    """End an experiment whose sampler or pruner failed; its trials save their state first."""
    move(experiment, State.STOPPING_ERROR)
    experiment.message = f"searcher.{key}: {error}"
    turn.touch(experiment)
    for trial in turn.indexes.unfinished_trials(experiment.id):
        if not is_stopping(trial.state):
            _stop_trial(turn, trial, State.STOPPING_CANCELED)
    if not experiment.state.is_terminal:
        end_if_drained(turn, experiment)


def on_trial_judged(turn: Turn, event: TrialJudged) -> None:
    """Pass the pruner's decision to the search; if the pruner failed, end the experiment."""
    experiment = _find_searching(turn, event.experiment_id)
    if experiment is None:
        return
    if event.error:
        _end_in_error(turn, experiment, "pruner", event.error)
        return
    search = turn.searches.of(experiment)
    apply_actions(turn, experiment, search.on_judged(event.index, event.is_pruned))


def on_kill_trial(turn: Turn, event: KillTrial) -> None:
    """Kill one trial; the search continues without it."""
    trial = turn.state.trial(event.trial_id)
    if State.STOPPING_KILLED not in TRANSITIONS[trial.state]:
        return  # the trial is over, is being killed, or has failed
    _stop_trial(turn, trial, State.STOPPING_KILLED)


def _stop_trial(turn: Turn, trial: Trial, state: State) -> None:
    move(trial, state)
    turn.touch(trial, str(state))
    stop_run(turn, trial, at_once=state is State.STOPPING_KILLED)
    if not trial.holds_slots:
        finish_trial(turn, trial, ExitReason.CANCELED)


def on_profile_trial(turn: Turn, event: ProfileTrial) -> None:
    """Order a profile from a running trial's ranks."""
    trial = turn.state.trial(event.trial_id)
    allocation = _running_allocation(trial)
    num_ranks = len(allocation.slots)
    if wrong := [rank for rank in event.ranks if rank >= num_ranks]:
        existing = "only rank 0" if num_ranks == 1 else f"ranks 0 to {num_ranks - 1}"
        raise ConfigError(
            [Problem("profile", f"ranks: got {wrong[0]}, but trial {trial.id} has {existing}")]
        )
    if any(not profile.is_over for profile in trial.profiles):
        raise Conflict(f"trial {trial.id} is being profiled already; try again in a moment")
    profile = Profile.built_from(event, ranks=sorted(set(event.ranks)))
    view = ProfileView(id=turn.state.seq, at=turn.now, profile=profile)
    trial.profiles = [*trial.profiles, view][-MAX_PROFILES:]
    turn.touch(trial, f"profile of {profile.steps} batches requested")
    send_orders(turn, trial)


def _running_allocation(trial: Trial) -> Allocation:
    allocation = trial.allocation
    if allocation is None or allocation.state is not AllocationState.RUNNING:
        is_active = trial.state is State.ACTIVE
        now = "it does not run now" if is_active else f"it is {in_words(trial.state)}"
        why = trial.waiting_for or now
        raise Conflict(f"trial {trial.id} cannot be profiled: {why}; only one that trains can")
    return allocation


def on_change_trial(turn: Turn, event: ChangeTrial) -> None:
    """Store and order a change of a trial's training; a waiting trial makes it at its start."""
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
    send_orders(turn, trial)
