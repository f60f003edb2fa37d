"""The searcher metric of each trial: its latest and best values, and the experiment's best.

A trial diverges while the searcher metric or a training loss is NaN or infinite. The search ranks
such a metric as the worst; a trial that ends while it diverges ends in ERROR (searching.py).
"""

from __future__ import annotations

from math import isfinite, isnan
from typing import Literal

from det_jupyter.contract.messages import Divergence
from det_jupyter.master.machine.model.state import Experiment, Trial
from det_jupyter.master.machine.model.turn import Turn


def record_metric(turn: Turn, trial: Trial, steps_completed: int, metric: float) -> None:
    """Store the searcher metric of a validation, and update the best values."""
    experiment = turn.state.experiment(trial.experiment_id)
    direction = experiment.direction
    trial.metrics_by_step[steps_completed] = metric
    trial.best_metric = direction.best((trial.best_metric, metric))
    if steps_completed >= max(trial.metrics_by_step):
        trial.latest_metric = metric
        record_divergence(trial, "validation", experiment.metric, steps_completed, metric)
    _set_best(turn, experiment, direction.best((experiment.best_metric, metric)))


def record_divergence(trial: Trial, group: str, metric: str, since: int, value: float) -> None:
    """Store that a metric became NaN or infinite at batch `since`, or is finite again."""
    key = f"{group}.{metric}"
    if isfinite(value):
        trial.divergences.pop(key, None)
    elif key not in trial.divergences:
        word: Literal["NaN", "infinite"] = "NaN" if isnan(value) else "infinite"
        trial.divergences[key] = Divergence(metric=metric, value=word, since=since)


def drop_later_metrics(turn: Turn, trial: Trial, after_step: int) -> None:
    """Remove a trial's metrics after a step: it restarts from a checkpoint of that step.

    Divergences that began later are removed too. If none is left, the alarms are also removed,
    since their batches are trained again.
    """
    experiment = turn.state.experiment(trial.experiment_id)
    direction = experiment.direction
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
        _set_best(turn, experiment, direction.best(values))


def _first_step(key: str, divergence: Divergence) -> int:
    """Return the number of batches after which a divergence was first reported.

    `since` of a training loss is the index of the batch, from 0.
    """
    return divergence.since + key.startswith("training.")


def _set_best(turn: Turn, experiment: Experiment, best: float | None) -> None:
    if best != experiment.best_metric:
        experiment.best_metric = best
        turn.touch(experiment)
