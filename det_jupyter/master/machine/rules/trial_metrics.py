"""The searcher's metric: which value is better. One that is not finite is the worst there is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from det_jupyter.master.machine.core.state import Experiment, Trial
from det_jupyter.master.machine.core.turn import Turn
from det_jupyter.records import to_finite


def best_of(values: Iterable[float | None], config: dict[str, Any]) -> float | None:
    """Return the best of these values by the configuration's `smaller_is_better`."""
    numbers = [number for v in values if (number := to_finite(v)) is not None]
    if not numbers:
        return None
    return min(numbers) if config["searcher"]["smaller_is_better"] else max(numbers)


def note_metric(turn: Turn, trial: Trial, steps_completed: int, metric: float) -> None:
    """Note the metric of a validation."""
    experiment = turn.experiment(trial.experiment_id)
    trial.metrics_by_step[steps_completed] = metric
    trial.best_metric = best_of((trial.best_metric, metric), experiment.config)
    if steps_completed >= max(trial.metrics_by_step):
        trial.latest_metric = metric
    _note_best(turn, experiment, best_of((experiment.best_metric, metric), experiment.config))


def forget_metrics(turn: Turn, trial: Trial, kept: dict[int, float]) -> None:
    """The trial starts again from a checkpoint: only these metrics hold."""
    experiment = turn.experiment(trial.experiment_id)
    was_best = trial.best_metric is not None and trial.best_metric == experiment.best_metric
    trial.metrics_by_step = kept
    trial.best_metric = best_of(kept.values(), experiment.config)
    trial.latest_metric = kept[max(kept)] if kept else None
    if was_best and trial.best_metric != experiment.best_metric:
        values = (other.best_metric for other in turn.trials_of(experiment))
        _note_best(turn, experiment, best_of(values, experiment.config))


def _note_best(turn: Turn, experiment: Experiment, best: float | None) -> None:
    if best != experiment.best_metric:
        experiment.best_metric = best
        turn.touch(experiment)
