"""The documents of the registry: the list of models in the sidebar, and the page of one."""

from __future__ import annotations

from typing import TypedDict


class ModelLine(TypedDict):
    """A model in the sidebar.

    Args:
        latest: Its newest version with the metric; empty if it has none.
        aliases: The aliases and their versions, such as "production: 3".
    """

    id: int
    name: str
    description: str
    labels: list[str]
    is_archived: bool
    latest: str
    aliases: list[str]


class ModelList(TypedDict):
    """The document `models`: all models, by name."""

    models: list[ModelLine]


class VersionLine(TypedDict):
    """A version of a model, and where it comes from.

    Args:
        metadata: A text for each, such as "owner: ada".
        value: Of the searcher's metric `metric`; empty if there is none.
        is_best: Whether no other version has a better value of this metric.
        hparams: The values of the hyperparameters that `ModelState` names.
        is_kept: Whether its checkpoint is whole: code of its trial may have deleted it.
        load: Code that loads the trained model.
    """

    number: int
    name: str
    comment: str
    notes: str
    labels: list[str]
    aliases: list[str]
    metadata: list[str]
    uuid: str
    experiment_id: int
    experiment: str
    trial_id: int
    steps: str
    metric: str
    value: str
    is_best: bool
    hparams: list[str]
    size_bytes: int
    is_kept: bool
    created_at: float
    load: str


class ModelState(TypedDict):
    """The document `model`: a model with its versions, the newest first.

    Args:
        hparams: Names of hyperparameters that are not the same in all versions.
        no_versions: How a version is registered; empty if there is one.
    """

    id: int
    name: str
    description: str
    notes: str
    labels: list[str]
    metadata: list[str]
    is_archived: bool
    created_at: float
    hparams: list[str]
    versions: list[VersionLine]
    no_versions: str
