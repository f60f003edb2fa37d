"""The searcher's metric of each trial: its latest and best values, and the experiment's best."""

from __future__ import annotations

from det_jupyter.direction import Direction
from det_jupyter.master.machine.core.state import Experiment, Trial
from det_jupyter.master.machine.core.turn import Turn


def note_metric(turn: Turn, trial: Trial, steps_completed: int, metric: float) -> None:
    """Note the metric of a validation."""
    experiment = turn.state.experiment(trial.experiment_id)
    direction = Direction.of_config(experiment.config)
    trial.metrics_by_step[steps_completed] = metric
    trial.best_metric = direction.best((trial.best_metric, metric))
    if steps_completed >= max(trial.metrics_by_step):
        trial.latest_metric = metric
    _note_best(turn, experiment, direction.best((experiment.best_metric, metric)))


def forget_metrics(turn: Turn, trial: Trial, after_step: int) -> None:
    """Drop the metrics after a step: the trial starts again from a checkpoint of that step."""
    experiment = turn.state.experiment(trial.experiment_id)
    direction = Direction.of_config(experiment.config)
    was_best = trial.best_metric is not None and trial.best_metric == experiment.best_metric
    kept = {step: metric for step, metric in trial.metrics_by_step.items() if step <= after_step}
    trial.metrics_by_step = kept
    trial.best_metric = direction.best(kept.values())
    trial.latest_metric = kept[max(kept)] if kept else None
    if was_best and trial.best_metric != experiment.best_metric:
        values = [other.best_metric for other in turn.state.trials_of(experiment)]
        _note_best(turn, experiment, direction.best(values))


def _note_best(turn: Turn, experiment: Experiment, best: float | None) -> None:
    if best != experiment.best_metric:
        experiment.best_metric = best
        turn.touch(experiment)
