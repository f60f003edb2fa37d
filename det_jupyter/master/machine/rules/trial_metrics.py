"""The searcher's metric of each trial: its latest and best values, and the experiment's best.

A trial diverges while the searcher's metric or a training loss is NaN or infinite. The search
compares it as the worst; if it ends like that, it ends in ERROR (searching.py).
"""

from __future__ import annotations

from math import isfinite, isnan
from typing import Literal

from det_jupyter.contract.messages import Divergence
from det_jupyter.contract.values.direction import Direction
from det_jupyter.master.machine.model.state import Experiment, Trial
from det_jupyter.master.machine.model.turn import Turn


def note_metric(turn: Turn, trial: Trial, steps_completed: int, metric: float) -> None:
    """Note the metric of a validation."""
    experiment = turn.state.experiment(trial.experiment_id)
    direction = Direction.of_config(experiment.config)
    trial.metrics_by_step[steps_completed] = metric
    trial.best_metric = direction.best((trial.best_metric, metric))
    if steps_completed >= max(trial.metrics_by_step):
        trial.latest_metric = metric
        name = str(experiment.config["searcher"]["metric"])
        note_divergence(trial, "validation", name, steps_completed, metric)
    _note_best(turn, experiment, direction.best((experiment.best_metric, metric)))


def note_divergence(trial: Trial, group: str, metric: str, since: int, value: float) -> None:
    """Note that a metric is NaN or infinite since a batch, or that it is finite again."""
    key = f"{group}.{metric}"
    if isfinite(value):
        trial.divergences.pop(key, None)
    elif key not in trial.divergences:
        word: Literal["NaN", "infinite"] = "NaN" if isnan(value) else "infinite"
        trial.divergences[key] = Divergence(metric=metric, value=word, since=since)


def forget_metrics(turn: Turn, trial: Trial, after_step: int) -> None:
    """Drop the metrics after a step: the trial starts again from a checkpoint of that step.

    Alarms stay with what diverges still: the others are of batches that it trains once more.
    """
    experiment = turn.state.experiment(trial.experiment_id)
    direction = Direction.of_config(experiment.config)
    was_best = trial.best_metric is not None and trial.best_metric == experiment.best_metric
    kept = {step: metric for step, metric in trial.metrics_by_step.items() if step <= after_step}
    trial.metrics_by_step = kept
    trial.best_metric = direction.best(kept.values())
    trial.latest_metric = kept[max(kept)] if kept else None
    trial.divergences = {
        key: each
        for key, each in trial.divergences.items()
        if _first_step(key, each) <= after_step
    }
    if not trial.divergences:
        trial.alarms = []
    if was_best and trial.best_metric != experiment.best_metric:
        values = [other.best_metric for other in turn.state.trials_of(experiment)]
        _note_best(turn, experiment, direction.best(values))


def _first_step(key: str, divergence: Divergence) -> int:
    """Return after how many batches it was reported first; that of a loss names the batch."""
    return divergence.since + key.startswith("training.")


def _note_best(turn: Turn, experiment: Experiment, best: float | None) -> None:
    if best != experiment.best_metric:
        experiment.best_metric = best
        turn.touch(experiment)
