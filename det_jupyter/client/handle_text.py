"""Formats handles as one line each (state, metric, hyperparameters), and ranks trials. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from det_jupyter.contract.messages import CheckpointView, ExperimentView, TrialView
from det_jupyter.contract.messages.status import UNUSUAL, api_name
from det_jupyter.contract.values.nested import flattened
from det_jupyter.contract.values.text import count, hparam_text, number, shortened, size
from det_jupyter.view.making.experiment_facts import (
    experiment_word,
    status_of,
    status_word,
    trial_status,
)

_LONGEST = 120  # characters of hyperparameters


def experiment_line(view: ExperimentView) -> str:
    """Return an experiment's state, its best value and the hyperparameters that reached it."""
    best = next(iter(ranked(view)), None)
    parts = [state_word(view), f"{view.progress:.0%}"]
    if len(view.trials) > 1:
        parts.append(count(len(view.trials), "trial"))
    if best_value := best_text(view):
        parts.append(best_value)
    if best is not None and (text := hparams_text(best.hparams, varying(view))):
        parts.append(text)
    return f"Experiment {view.id} “{shortened(view.name, 60)}” ({', '.join(parts)})"


def state_word(view: ExperimentView) -> str:
    """Return an experiment's state as a word for users, such as "running" or "completed"."""
    return experiment_word(view).lower()


def state_name(view: ExperimentView | TrialView) -> str:
    """Return the state of an experiment or trial as its API name, for scripts."""
    if isinstance(view, ExperimentView):
        return api_name(status_of(view))
    return api_name(trial_status(view, view.state))


def best_text(view: ExperimentView) -> str:
    """Return an experiment's best metric value and the trial that has it; "" if there is none."""
    best = next(iter(ranked(view)), None)
    if best is None or best.best_metric is None:
        return ""
    of_trial = f" of trial {best.id}" if len(view.trials) > 1 else ""
    return f"{view.metric} {number(best.best_metric)}{of_trial}"


def trial_line(view: TrialView) -> str:
    """Return a trial's state, its best value of the searcher's metric and its hyperparameters."""
    parts = [describe_trial(view), f"batch {view.steps_completed}", f"{view.progress:.0%}"]
    if view.best_metric is not None:
        parts.append(f"best metric {number(view.best_metric)}")
    if text := hparams_text(view.hparams):
        parts.append(text)
    return f"Trial {view.id} ({', '.join(parts)})"


def checkpoint_line(view: CheckpointView, hparams: Mapping[str, Any]) -> str:
    """Return a checkpoint's trial, batch, metric, size and hyperparameters.

    The state is included unless it is COMPLETED.
    """
    parts = [f"batch {view.steps_completed}"]
    if view.searcher_metric is not None:
        parts.append(f"metric {view.searcher_metric:.6g}")
    parts.append(size(view.size_bytes))
    if view.state != "COMPLETED":
        parts.append("deleted" if view.state == "DELETED" else "deleted in part")
    if text := hparams_text(hparams):
        parts.append(text)
    return f"Checkpoint {view.uuid} of trial {view.trial_id}: {', '.join(parts)}"


def hparams_text(hparams: Mapping[str, Any], names: list[str] | None = None) -> str:
    """Return hyperparameters as text, shortened; only those in `names`, if any is given.

    >>> hparams_text({"optimizer": {"lr": 0.1}, "depth": 2}, ["depth"])
    'depth=2'
    """
    values = dict(flattened(hparams))
    chosen = {name: values[name] for name in names if name in values} if names else values
    texts = (f"{name}={hparam_text(value)}" for name, value in chosen.items())
    return shortened(", ".join(texts), _LONGEST)


def ranked(view: ExperimentView) -> list[TrialView]:
    """Return the trials, best value of the searcher's metric first, those without one last."""
    loss = view.direction.loss
    return sorted(view.trials, key=lambda t: (t.best_metric is None, loss(t.best_metric), t.id))


def describe_trial(trial: TrialView) -> str:
    """Return a trial's state as a word or two for users."""
    return UNUSUAL.get(trial.state) or status_word(trial, trial_status(trial, trial.state)).lower()


def varying(view: ExperimentView) -> list[str]:
    """Return the paths of the hyperparameters that differ between trials, in their order."""
    seen: dict[str, set[str]] = {}
    for trial in view.trials:
        for path, value in flattened(trial.hparams):
            seen.setdefault(path, set()).add(repr(value))
    return [path for path, values in seen.items() if len(values) > 1]


def describe_choice(view: ExperimentView) -> str:
    """Return the end of a message: how to choose a trial of a search, and which is the best."""
    best = next(iter(ranked(view)), None)
    leader = "none has reported the metric yet"
    if best is not None and best.best_metric is not None:
        leader = f"now trial {best.id} with {view.metric}={best.best_metric:.4g}"
    return (
        f"take best_trial() ({leader}), ranking()[i] (best first) or trials[i] (of "
        f"{len(view.trials)} so far, oldest first)"
    )
