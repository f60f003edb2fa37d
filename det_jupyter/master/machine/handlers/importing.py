"""What was trained elsewhere becomes an experiment that is over from the beginning.

Its trials have the data of the runs: hyperparameters, times, ends, metrics, and the checkpoints if
there are some. A repeated import adds new runs, and new data of the other runs. The experiment can
be continued and forked if its code came with it; then nothing can be added any more.
"""

from __future__ import annotations

from det_jupyter.config import ExperimentConfig, parse_config
from det_jupyter.config.pools import DEFAULT_POOL
from det_jupyter.contract.messages import (
    CheckpointRef,
    CheckpointView,
    ImportedCheckpoint,
    ImportedTrial,
    ImportExperiment,
    SearchView,
    State,
)
from det_jupyter.contract.messages.status import in_words
from det_jupyter.contract.values.direction import Direction
from det_jupyter.errors import Conflict
from det_jupyter.master.machine.model.lifecycle import OVER
from det_jupyter.master.machine.model.state import Experiment, Trial
from det_jupyter.master.machine.model.turn import Turn
from det_jupyter.searcher import ExitReason


def on_import(turn: Turn, event: ImportExperiment) -> None:
    """Create an experiment of imported runs, or add to the one that has them already."""
    settings = parse_config(event.config)  # raises before anything changes
    known = turn.indexes.find_submitted(event.key)
    _check_checkpoints(turn, event, known)
    if known is None:
        experiment = _new_experiment(turn, event, settings)
    else:
        experiment = turn.state.experiment(known)
        _check_same(experiment, settings)
        _check_not_continued(turn, experiment, event)
        turn.reconfigure(experiment, _updated(experiment, event))
    present = {trial.source: trial for trial in turn.state.trials_of(experiment)}
    for imported in event.trials:
        trial = present.get(imported.source) or _new_trial(turn, experiment, imported)
        _update(turn, trial, imported)
    _conclude(turn, experiment, event)


def _new_experiment(turn: Turn, event: ImportExperiment, settings: ExperimentConfig) -> Experiment:
    turn.state.last_experiment_id += 1
    number = turn.state.last_experiment_id
    experiment = Experiment.built_from(
        event,
        id=number,
        state=State.COMPLETED,  # until `_conclude`
        pool=DEFAULT_POOL,
        position=float(number),
        created_at=min(trial.created_at for trial in event.trials),
    )
    turn.state.experiments[number] = experiment.with_settings(settings)
    return experiment


def _check_same(experiment: Experiment, settings: ExperimentConfig) -> None:
    """Check that runs can be added to an experiment.

    Raises:
        Conflict: The experiment is being deleted, or its runs are compared by another metric.
    """
    if not experiment.source:
        raise Conflict(f"experiment {experiment.id} has this key and was trained here")
    name = f"experiment {experiment.id}, which was imported from {experiment.source},"
    if experiment.state not in OVER:
        raise Conflict(f"{name} is {in_words(experiment.state)}")
    same = {  # not parsed: it is replaced, and may be of another version of det_jupyter
        "metric": experiment.metric,
        "smaller_is_better": experiment.direction is Direction.MINIMIZE,
    }
    for key, before in same.items():
        if before != (now := getattr(settings.searcher, key)):
            raise Conflict(
                f"{name} has searcher.{key} {before}, and this import {now}; delete it first, "
                "or import with the same"
            )


def _check_not_continued(turn: Turn, experiment: Experiment, event: ImportExperiment) -> None:
    """Check that no trial of an imported experiment was trained further here.

    Raises:
        Conflict: One was: what is added would come after that.
    """
    runs = {trial.source: trial.runs for trial in event.trials}
    for trial in turn.state.trials_of(experiment):
        if trial.runs > runs.get(trial.source, trial.runs if trial.source else 0):
            raise Conflict(
                f"experiment {experiment.id}, which was imported from {experiment.source}, was "
                "continued here since, so nothing can be added to it; delete it to import again"
            )


def _check_checkpoints(turn: Turn, event: ImportExperiment, known: int | None) -> None:
    """Check that the checkpoints of an import are not those of another experiment.

    Raises:
        Conflict: One is.
    """
    for uuid in (one.uuid for trial in event.trials for one in trial.checkpoints):
        own = turn.state.checkpoints.get(uuid)
        if own is not None and own.experiment_id != known:
            raise Conflict(
                f"{event.source}: its checkpoint {uuid} is one of experiment "
                f"{own.experiment_id} here, so nothing was imported"
            )


def _updated(experiment: Experiment, event: ImportExperiment) -> dict[str, object]:
    """Return the new configuration, keeping changes that the user may have made to the old one."""
    kept = {key: experiment.config[key] for key in ("name", "description", "labels")}
    return event.config | kept


def _new_trial(turn: Turn, experiment: Experiment, imported: ImportedTrial) -> Trial:
    turn.state.last_trial_id += 1
    trial = Trial(
        id=turn.state.last_trial_id,
        experiment_id=experiment.id,
        index=len(experiment.trial_ids),
        hparams=imported.hparams,
        seed=imported.seed,
        created_at=imported.created_at,
        source=imported.source,
    )
    turn.state.trials[trial.id] = trial
    experiment.trial_ids.append(trial.id)
    return trial


# Fields that a trial has as they are imported.
_SAME = (
    *("created_at", "ended_at", "notices", "slot_seconds", "runs", "restarts", "target"),
    *("was_stopped", "bracket", "rung_metrics", "failure", "changes"),
)


def _update(turn: Turn, trial: Trial, imported: ImportedTrial) -> None:
    direction = turn.state.experiment(trial.experiment_id).direction
    for name in _SAME:
        setattr(trial, name, getattr(imported, name))
    trial.state = State(imported.state)
    trial.exit_reason = ExitReason.COMPLETED if imported.state == "COMPLETED" else None
    held_s = imported.ended_at - imported.created_at
    trial.held_s = max(0.0, held_s) if imported.held_s is None else imported.held_s
    trial.metrics_by_step = imported.validations
    trial.best_metric = direction.best(imported.validations.values())
    last = max(imported.validations, default=None)
    trial.latest_metric = None if last is None else imported.validations[last]
    for checkpoint in imported.checkpoints:
        _add_checkpoint(turn, trial, checkpoint)
    turn.touch(trial)


def _add_checkpoint(turn: Turn, trial: Trial, imported: ImportedCheckpoint) -> None:
    if imported.uuid in turn.state.checkpoints:
        return
    turn.state.checkpoints[imported.uuid] = CheckpointView.built_from(
        imported, experiment_id=trial.experiment_id, trial_id=trial.id, is_placed=True
    )
    turn.changes.checkpoints.add(imported.uuid)
    trial.checkpoints.append(imported.uuid)
    trial.latest_checkpoint = CheckpointRef.built_from(imported)


def _conclude(turn: Turn, experiment: Experiment, event: ImportExperiment) -> None:
    """Set the state of the experiment, its times and its best value from its trials."""
    trials = turn.state.trials_of(experiment)
    direction = experiment.direction
    states = {trial.state for trial in trials}
    experiment.state = states.pop() if len(states) == 1 else State.COMPLETED
    if event.state is not None:
        experiment.state = State(event.state)
    experiment.created_at = min(trial.created_at for trial in trials)
    experiment.ended_at = max(trial.ended_at or 0.0 for trial in trials)
    experiment.held_s = _elapsed(trials)
    experiment.best_metric = direction.best(trial.best_metric for trial in trials)
    experiment.search_view = event.search
    if event.search is None and (num := len(trials)) > 1:
        experiment.search_view = SearchView(
            name=experiment.searcher_name, max_trials=num, num_created=num, num_closed=num
        )
    turn.touch(experiment)


def _elapsed(trials: list[Trial]) -> float:
    """Return the seconds in which at least one of the trials trained."""
    elapsed = end = 0.0
    for trial in sorted(trials, key=lambda each: each.created_at):
        begin = max(end, trial.created_at)
        end = max(begin, trial.ended_at or 0.0)
        elapsed += end - begin
    return elapsed
