"""`determined.experimental.client`: experiments, trials, checkpoints and models from Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from det_jupyter.contract.messages import State as ExperimentState
from det_jupyter.contract.messages import State as TrialState
from determined._lacking import asked_of
from determined.experimental.client._checkpoint import Checkpoint, DownloadMode
from determined.experimental.client._determined import Determined, note_once
from determined.experimental.client._experiment import Experiment
from determined.experimental.client._model import (
    Model,
    ModelOrderBy,
    ModelSortBy,
    ModelVersion,
)
from determined.experimental.client._sorting import CheckpointSortBy, OrderBy, TrialSortBy
from determined.experimental.client._trial import Trial, TrialMetrics

__all__ = [
    "Checkpoint",
    "CheckpointSortBy",
    "Determined",
    "DownloadMode",
    "Experiment",
    "ExperimentState",
    "Model",
    "ModelOrderBy",
    "ModelSortBy",
    "ModelVersion",
    "OrderBy",
    "Trial",
    "TrialMetrics",
    "TrialSortBy",
    "TrialState",
    "create_experiment",
    "create_model",
    "get_checkpoint",
    "get_experiment",
    "get_model",
    "get_models",
    "get_trial",
    "iter_trials_metrics",
    "list_experiments",
    "list_models",
    "login",
    "logout",
]


def login(*args: Any, **kwargs: Any) -> None:
    """Do nothing but say so: there is one master for each user, which needs no login."""
    note_once("login()")


def logout() -> None:
    """Do nothing."""


def create_experiment(*args: Any, **kwargs: Any) -> Experiment:
    """Submit an experiment; takes what `Determined.create_experiment` takes."""
    return Determined().create_experiment(*args, **kwargs)


def get_experiment(experiment_id: int) -> Experiment:
    """Return an experiment."""
    return Determined().get_experiment(experiment_id)


def list_experiments(**which: Any) -> list[Experiment]:
    """Return the experiments that match; see `Determined.list_experiments`."""
    return Determined().list_experiments(**which)


iter_experiments = list_experiments


def get_trial(trial_id: int) -> Trial:
    """Return a trial."""
    return Determined().get_trial(trial_id)


def get_checkpoint(uuid: str) -> Checkpoint:
    """Return a checkpoint, of any experiment."""
    return Determined().get_checkpoint(uuid)


def create_model(name: str, *args: Any, **kwargs: Any) -> Model:
    """Create a model; takes what `Determined.create_model` takes."""
    return Determined().create_model(name, *args, **kwargs)


def get_model(identifier: str | int) -> Model:
    """Return a model by its name or its number."""
    return Determined().get_model(identifier)


def list_models(**which: Any) -> list[Model]:
    """Return the models that match; see `Determined.list_models`."""
    return Determined().list_models(**which)


get_models = list_models


def iter_trials_metrics(trial_ids: Iterable[int], group: str) -> Iterator[TrialMetrics]:
    """Yield the reports of a group of metrics, of several trials."""
    for trial_id in trial_ids:
        yield from get_trial(trial_id).iter_metrics(group)


stream_trials_metrics = iter_trials_metrics

__getattr__ = asked_of(__name__)
