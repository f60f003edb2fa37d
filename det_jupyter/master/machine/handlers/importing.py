"""Runs of other tools become an experiment that is over from the beginning.

Its trials have the data of the runs: hyperparameters, times, ends and metrics. They never queue,
and the experiment cannot be continued or forked, as it has no code. A repeated import adds new
runs, and new data of the other runs.
"""

from __future__ import annotations

from det_jupyter.config import ExperimentConfig, parse_config
from det_jupyter.config.pools import DEFAULT_POOL
from det_jupyter.contract.messages import ImportedTrial, ImportExperiment, SearchView, State
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
    if known is None:
        experiment = _new_experiment(turn, event, settings)
    else:
        experiment = turn.state.experiment(known)
        _check_same(experiment, settings)
        turn.reconfigure(experiment, _updated(experiment, event))
    present = {trial.source: trial for trial in turn.state.trials_of(experiment)}
    for imported in event.trials:
        trial = present.get(imported.source) or _new_trial(turn, experiment, imported)
        _update(turn, trial, imported)
    _conclude(turn, experiment)


def _new_experiment(turn: Turn, event: ImportExperiment, settings: ExperimentConfig) -> Experiment:
    turn.state.last_experiment_id += 1
    number = turn.state.last_experiment_id
    experiment = Experiment.built_from(
        event,
        id=number,
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
        seed=0,  # unknown
        created_at=imported.created_at,
        source=imported.source,
    )
    turn.state.trials[trial.id] = trial
    experiment.trial_ids.append(trial.id)
    return trial


def _update(turn: Turn, trial: Trial, imported: ImportedTrial) -> None:
    direction = turn.state.experiment(trial.experiment_id).direction
    trial.state = State(imported.state)
    trial.exit_reason = ExitReason.COMPLETED if imported.state == "COMPLETED" else None
    trial.created_at, trial.ended_at = imported.created_at, imported.ended_at
    trial.held_s = max(0.0, imported.ended_at - imported.created_at)
    trial.notices = imported.notices
    trial.metrics_by_step = imported.validations
    trial.best_metric = direction.best(imported.validations.values())
    last = max(imported.validations, default=None)
    trial.latest_metric = None if last is None else imported.validations[last]
    turn.touch(trial)


def _conclude(turn: Turn, experiment: Experiment) -> None:
    """Set the state of the experiment, its times and its best value from its trials."""
    trials = turn.state.trials_of(experiment)
    direction = experiment.direction
    states = {trial.state for trial in trials}
    experiment.state = states.pop() if len(states) == 1 else State.COMPLETED
    experiment.created_at = min(trial.created_at for trial in trials)
    experiment.ended_at = max(trial.ended_at or 0.0 for trial in trials)
    experiment.held_s = _elapsed(trials)
    experiment.best_metric = direction.best(trial.best_metric for trial in trials)
    if (num := len(trials)) > 1:
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
