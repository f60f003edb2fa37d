"""Continues an experiment that is over, under its own number.

    single          its only trial trains further: to a greater length, or once more after a
                    failure; with another configuration if the user gives one
    random, grid    the trials that were not completed continue from their checkpoints; then the
                    trials that were not created yet follow

The search of an experiment that is over was discarded. A new one creates the same trials in the
same order; `report_existing_trial` reports to it those that are completed. The others rest until
the new search requests their training, so `max_concurrent_trials` still holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from det_jupyter.config import ExperimentConfig, origins
from det_jupyter.config.storages import LOCATING
from det_jupyter.contract.messages import State, TrialChangeView
from det_jupyter.contract.messages.status import in_words
from det_jupyter.contract.schema.key_paths import (
    look_up,
)
from det_jupyter.contract.values.nested import describe_changes, flattened
from det_jupyter.contract.values.text import listed
from det_jupyter.errors import ConfigError, Conflict, Problem
from det_jupyter.master.machine.model.configured import Configured
from det_jupyter.master.machine.model.lifecycle import OVER, move
from det_jupyter.master.machine.model.state import Experiment, Trial
from det_jupyter.master.machine.model.turn import Turn
from det_jupyter.master.machine.rules.alerts import withdraw
from det_jupyter.master.machine.rules.retention import usable_checkpoint
from det_jupyter.master.machine.rules.trial_orders import settle_changes
from det_jupyter.searcher import Action, Create, ExitReason
from det_jupyter.searcher.methods import SECTIONS

# Keys that must not change: old and new trials, metrics and checkpoints share them.
_UNCHANGEABLE = {
    "entrypoint": "the code is the same",
    "searcher.name": "a search goes on as it began",
    "searcher.metric": "the metrics that are there are of the old one",
    "searcher.smaller_is_better": "the metrics that are there were compared by it",
    "searcher.source_trial_id": "the trial has begun",
    "searcher.source_checkpoint_uuid": "the trial has begun",
    "resources.resource_pool": "change the experiment's pool when it has been continued",
    **{f"checkpoint_storage.{key}": "its checkpoints stay where they are" for key in LOCATING},
}
_WAITS_FOR_SEARCH = (
    "rests until its search continues it: so many train at once (max_concurrent_trials)"
)
_LIVE_RESOURCES = ("priority", "weight", "max_slots")  # these may have been changed while it ran


def check_continuable(experiment: Experiment, override: Mapping[str, Any]) -> None:
    """Check that an experiment can be continued, with these overrides of its configuration.

    Raises:
        Conflict: The experiment is not over, or its code is not here, or its search cannot be
            continued or overridden.
        ConfigError: The override has a key that cannot be overridden.
    """
    name = f"experiment {experiment.id}"
    _check_code(experiment, "continued")
    if experiment.state not in OVER:
        raise Conflict(
            f"{name} is {in_words(experiment.state)}; only one that is over (completed, "
            "canceled or error) can be continued"
        )
    if experiment.is_archived:
        raise Conflict(f"{name} is archived; unarchive it first")
    searcher = experiment.settings.searcher
    if not searcher.is_continuable:
        others = listed(key for key, each in SECTIONS.items() if each.is_continuable)
        raise Conflict(
            f"{name} is a search by {searcher.name}, which cannot be continued; only {others} "
            "can. Let its best trials train on: trial.train_to(...)"
        )
    if override and searcher.name != "single":
        raise Conflict(
            f"{name} is a search by {searcher.name}, and goes on with the configuration that it "
            "has; only that of a single one can be overridden. Fork it to change something"
        )
    if wrong := [key for key in ("project", "workspace") if key in override]:
        raise ConfigError([Problem(key, "cannot be specified to continue") for key in wrong])


def _check_code(experiment: Experiment, done: str) -> None:
    if experiment.is_unmanaged:
        raise Conflict(
            f"experiment {experiment.id} was started by hand and cannot be {done}: its code is "
            f"not here; start its program again, with name={experiment.name!r} it goes on"
        )
    if experiment.source and not experiment.capsule.has_code:
        raise Conflict(
            f"experiment {experiment.id} was imported from {experiment.source} and cannot be "
            f"{done}: its code is not here"
        )


def check_forkable(parent: Experiment) -> None:
    """Check that an experiment can be forked.

    Raises:
        Conflict: The experiment's code is not here, or it is archived, or is being deleted.
    """
    _check_code(parent, "forked")
    if parent.is_archived:
        raise Conflict(f"experiment {parent.id} is archived and cannot be forked; unarchive it")
    if parent.state in (State.DELETING, State.DELETE_FAILED):
        raise Conflict(f"experiment {parent.id} is being deleted and cannot be forked")


def reopen(turn: Turn, experiment: Experiment, new: Configured) -> None:
    """Make an experiment that is over ACTIVE again; its trials are idle until its search starts.

    Args:
        turn: The event being handled.
        experiment: An experiment that is over.
        new: Its configuration from now on.

    Raises:
        Conflict: The experiment cannot be continued.
        ConfigError: The experiment cannot be continued with this configuration.
    """
    check_continuable(experiment, changed_values(experiment.config, new.config))
    _check_unchangeable(experiment.config, new.config)
    trials, settings = turn.state.trials_of(experiment), new.settings
    incomplete = [trial for trial in trials if _is_incomplete(trial, settings)]
    if not incomplete:
        more = "" if _is_search(settings) else "; give it more to train: a greater max_length"
        raise Conflict(
            f"experiment {experiment.id} has been completed, cannot continue this experiment{more}"
        )
    _check_checkpoints(turn, incomplete)
    before = experiment.settings
    if not _is_search(settings):
        _update_hparams(turn, incomplete[0], before, settings)
    keep_period = settings.min_validation_period == before.min_validation_period
    _apply_config(turn, experiment, new)
    _open_again(turn, experiment)
    for trial in incomplete:
        settle_changes(trial, keep_period=keep_period)
        _reopen_trial(turn, trial)


def reopen_unmanaged(turn: Turn, experiment: Experiment, new: Configured) -> None:
    """Make an unmanaged experiment that is over ACTIVE again.

    Args:
        turn: The event being handled.
        experiment: An experiment that is over.
        new: Its configuration from now on.

    Raises:
        ConfigError: The configuration has another metric or storage than before.
    """
    _check_unchangeable(experiment.config, new.config)
    (trial,) = turn.state.trials_of(experiment)
    _update_hparams(turn, trial, experiment.settings, new.settings)
    _apply_config(turn, experiment, new)
    _open_again(turn, experiment)
    _reopen_trial(turn, trial)


def _open_again(turn: Turn, experiment: Experiment) -> None:
    move(experiment, State.ACTIVE)
    experiment.ended_at = None
    experiment.message = ""
    experiment.search_progress = 0.0
    experiment.is_given_up = False
    withdraw(experiment)
    turn.touch(experiment)


def report_existing_trial(turn: Turn, experiment: Experiment, create: Create) -> list[Action]:
    """Report the end of a trial that existed before to a new search; return its actions."""
    trial = turn.state.trial_at(experiment, create.index)
    if not trial.state.is_terminal:
        return []
    reason = trial.exit_reason or ExitReason.CANCELED
    return turn.searches.of(experiment).on_exited(create.index, reason)


def _is_search(settings: ExperimentConfig) -> bool:
    return settings.searcher.name != "single"


def _check_unchangeable(old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    problems = [
        Problem(
            path, f"got {look_up(new, path)!r}, expected {look_up(old, path)!r} as before: {why}"
        )
        for path, why in _UNCHANGEABLE.items()
        if look_up(new, path) != look_up(old, path)
    ]
    if problems:
        raise ConfigError(problems)


def _is_incomplete(trial: Trial, settings: ExperimentConfig) -> bool:
    if _is_search(settings):
        return trial.state is not State.COMPLETED
    if trial.exit_reason is not ExitReason.COMPLETED:
        return True  # the trial failed, was canceled, stopped early or had InvalidHP
    length = settings.searcher.max_length
    assert length is not None, "a single searcher has one"
    return length.amount > length.comparable_amount(trial.target)


def _check_checkpoints(turn: Turn, incomplete: list[Trial]) -> None:
    """Check that trials which have trained still have a checkpoint to continue from."""
    state, saved = turn.state, {one.trial_id for one in turn.state.checkpoints.values()}
    trained = [
        trial.id
        for trial in incomplete
        if usable_checkpoint(state, trial.latest_checkpoint) is None
        and (
            trial.id in saved
            or trial.latest_checkpoint
            or (trial.warm_start and usable_checkpoint(state, trial.warm_start) is None)
        )
    ]
    if trained:
        which = ", ".join(map(str, sorted(trained)))
        raise Conflict(
            f"trial{'s' * (len(trained) > 1)} {which}: the checkpoints to go on from were deleted "
            "(checkpoint_storage.save_trial_latest keeps them); submit the experiment anew"
        )


def _update_hparams(
    turn: Turn, trial: Trial, old: ExperimentConfig, new: ExperimentConfig
) -> None:
    """Set the hyperparameters whose configuration has changed; the others keep their values.

    The update is stored as one of the trial's changes. Restoring the checkpoint determines how it
    affects the optimizers (pytorch/checkpoints/configured.py).
    """
    if old.hyperparameters == new.hyperparameters:
        return
    seed = new.reproducibility.experiment_seed
    (drawn,) = new.searcher.sample(new.hyperparameters, seed, 1)
    specs, former = old.hyperparameters, trial.hparams
    trial.hparams = {
        name: trial.hparams[name] if name in specs and specs[name] == spec else drawn[name]
        for name, spec in new.hyperparameters.items()
    }
    if changes := describe_changes(former, trial.hparams):
        checkpoint = usable_checkpoint(turn.state, trial.latest_checkpoint)
        now = dict(flattened(trial.hparams))
        view = TrialChangeView(
            id=turn.state.seq,
            at=turn.now,
            steps_completed=checkpoint.steps_completed if checkpoint else 0,
            text=", ".join(changes),
            former_hparams={
                path: value for path, value in flattened(former) if now.get(path) != value
            },
        )
        trial.changes = [*trial.changes, view]


def _apply_config(turn: Turn, experiment: Experiment, new: Configured) -> None:
    before, now = experiment.settings.resources, new.settings.resources
    for name in _LIVE_RESOURCES:
        if (value := getattr(now, name)) != getattr(before, name):
            setattr(experiment, name, value)
    given = origins(changed_values(experiment.config, new.config), {}, new.config)
    mine = [path for path, origin in given.items() if origin == "you"]
    turn.reconfigure(experiment, new.config, mine, new.settings)


def changed_values(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of `new` that are missing in `old` or different, nested as in `new`."""
    changed: dict[str, Any] = {}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if inner := changed_values(before, value):
                changed[key] = inner
        elif value != before:
            changed[key] = value
    return changed


def _reopen_trial(turn: Turn, trial: Trial) -> None:
    move(trial, State.ACTIVE)
    trial.is_resting = True
    trial.target, trial.target_is_last = None, False
    trial.ended_at = trial.exit_reason = trial.failure = None
    trial.restarts, trial.losses = 0, []
    trial.num_recoveries, trial.recoveries = 0, []
    trial.was_stopped = False
    trial.message = ""
    trial.divergences = {}
    trial.avoids = []
    trial.waiting_for = _WAITS_FOR_SEARCH
    turn.touch(trial, "continued")
