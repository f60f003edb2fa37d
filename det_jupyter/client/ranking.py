"""The trials of an experiment, best first, and their rows: views in, data out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from det_jupyter.wire import AllocationState, ExperimentView, State, TrialView


def ranked(view: ExperimentView) -> list[TrialView]:
    """Return the trials, best value of the searcher's metric first, those without one last."""
    loss = view.direction.loss
    return sorted(view.trials, key=lambda t: (t.best_metric is None, loss(t.best_metric), t.id))


def describe_trial(trial: TrialView) -> str:
    """Return in a word or two what a trial does, or how it ended."""
    if trial.was_stopped:
        return "stopped early"
    if trial.state is not State.ACTIVE:
        return str(trial.state).lower().replace("_", " ")
    if trial.allocation is not None and trial.allocation.state is not AllocationState.QUEUED:
        return str(trial.allocation.state).lower()
    return "resting" if trial.is_resting else "waiting"


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


def describe_choice(view: ExperimentView) -> str:
    """Return how to choose a trial of a search, and which is the best."""
    best = next(iter(ranked(view)), None)
    leads = "none has reported the metric yet"
    if best is not None and best.best_metric is not None:
        leads = f"now trial {best.id} with {view.metric}={best.best_metric:.4g}"
    return (
        f"take best_trial() ({leads}), ranking()[i] (best first) or trials[i] (of "
        f"{len(view.trials)} so far, oldest first)"
    )
