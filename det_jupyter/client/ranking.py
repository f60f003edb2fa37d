"""Which trial is the best: views in, order and rows out. Knows no master."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from det_jupyter.records import to_finite
from det_jupyter.wire import AllocationState, ExperimentView, State, TrialView


def ranked(view: ExperimentView) -> list[TrialView]:
    """Return the trials, best value of the searcher's metric first, those without one last."""
    sign = 1.0 if view.config["searcher"]["smaller_is_better"] else -1.0
    return sorted(view.trials, key=lambda trial: _key(trial, sign))


def _key(trial: TrialView, sign: float) -> tuple[bool, float, int]:
    return trial.best_metric is None, sortable(trial.best_metric, sign), trial.id


def sortable(metric: float | None, sign: float) -> float:
    """Return a metric so that smaller is better; what is not finite is the worst there is."""
    number = to_finite(metric)
    return math.inf if number is None else sign * number


def describe_trial(trial: TrialView) -> str:
    """Return in a word or two what a trial does, or how it ended."""
    if trial.was_stopped:
        return "stopped early"
    if trial.state is not State.ACTIVE:
        return str(trial.state).lower().replace("_", " ")
    if trial.allocation is not None and trial.allocation.state is not AllocationState.QUEUED:
        return str(trial.allocation.state).lower()
    return "resting" if trial.is_resting else "waiting"


def row_of(trial: TrialView, view: ExperimentView) -> dict[str, Any]:
    """Return a trial as a flat row; hyperparameters are columns, nested ones with dots."""
    metric = view.config["searcher"]["metric"]
    return {
        "trial": trial.id,
        "state": describe_trial(trial),
        metric: trial.best_metric,
        "batches": trial.steps_completed,
        "rungs": len(trial.rung_metrics),
        **dict(flattened(trial.hparams)),
    }


def flattened(hparams: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each hyperparameter by its dotted path.

    >>> dict(flattened({"optimizer": {"lr": 0.1}, "depth": 2}))
    {'optimizer.lr': 0.1, 'depth': 2}
    """
    for name, value in hparams.items():
        if isinstance(value, Mapping) and value:
            yield from flattened(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def varying(view: ExperimentView) -> list[str]:
    """Return the hyperparameters that differ between trials, in their order."""
    seen: dict[str, set[str]] = {}
    for trial in view.trials:
        for path, value in flattened(trial.hparams):
            seen.setdefault(path, set()).add(repr(value))
    return [path for path, values in seen.items() if len(values) > 1]
