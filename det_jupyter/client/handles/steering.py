"""Changes of an experiment that need several requests, or a request made of several arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from det_jupyter.client.client import Client
from det_jupyter.client.handles.checkpoint import Checkpoint, checkpoints_from
from det_jupyter.client.handles.trial import Trial
from det_jupyter.client.requests import make_request, number_of
from det_jupyter.config import merge, read_changes
from det_jupyter.contract.messages import (
    ChangeSearch,
    ContinueExperiment,
    CreateExperiment,
    SetRetention,
)
from det_jupyter.errors import ConfigError

_SOURCES = ("source_trial_id", "source_checkpoint_uuid")


def change_limits(client: Client, experiment_id: int, **limits: Any) -> None:
    """Change the limits of a search; see `Experiment.change_search`."""
    change = make_request(ChangeSearch, experiment_id=experiment_id, **limits)
    if not change.given():
        raise ConfigError(
            ["nothing to change: give max_trials, max_length, max_concurrent_trials or "
             "hyperparameters"]
        )  # fmt: skip
    client.change(change)


def continue_experiment(
    client: Client, experiment_id: int, config: Mapping[str, Any] | None
) -> None:
    """Continue an experiment that has ended; see `Experiment.continue_`."""
    client.continue_experiment(experiment_id, _read_changes(config))


def submit_fork(
    client: Client,
    experiment_id: int,
    config: Mapping[str, Any] | None,
    *,
    trial: Trial | int | None,
    checkpoint: Checkpoint | str | None,
    queue_anyway: bool,
) -> int:
    """Submit an experiment's code again, and return the new experiment's id.

    The arguments are those of `Experiment.fork`.
    """
    if trial is not None and checkpoint is not None:
        raise ConfigError(["fork: give a trial or a checkpoint, not both"])
    view = client.experiment(experiment_id)
    document = merge(view.config, _read_changes(config).config)
    if trial is not None:
        document = _with_source(document, "source_trial_id", number_of(trial))
    if checkpoint is not None:
        uuid = checkpoint.uuid if isinstance(checkpoint, Checkpoint) else checkpoint
        document = _with_source(document, "source_checkpoint_uuid", uuid)
    request = CreateExperiment(
        config=document,
        capsule=view.capsule,
        python=view.python,
        cwd=view.cwd,
        notebook=view.notebook,
        queue_anyway=queue_anyway,
        parent_id=experiment_id,
    )
    return client.create(request).id


def apply_retention(client: Client, experiment_id: int, **policy: Any) -> list[Checkpoint]:
    """Set an experiment's retention policy, and return the checkpoints that it deletes.

    `policy` are the arguments of `Experiment.set_retention`.
    """
    deleted = client.change(make_request(SetRetention, experiment_id=experiment_id, **policy))
    return checkpoints_from(client, experiment_id, deleted)


def _read_changes(config: Mapping[str, Any] | None) -> ContinueExperiment:
    """Return changes of a configuration with nested keys in place of dotted ones."""
    given = make_request(ContinueExperiment, config=config or {})
    return ContinueExperiment(config=read_changes(given.config))


def _with_source(
    document: dict[str, Any],
    key: Literal["source_trial_id", "source_checkpoint_uuid"],
    value: Any,
) -> dict[str, Any]:
    """Return the configuration with this source of weights instead of its own."""
    searcher = {k: v for k, v in document["searcher"].items() if k not in _SOURCES}
    return document | {"searcher": searcher | {key: value}}
