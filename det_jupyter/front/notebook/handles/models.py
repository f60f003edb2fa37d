"""`create_model`, `model` and `models`: the registry of models, from a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from det_jupyter.client.calls import explains_arguments
from det_jupyter.client.handles.models import (
    FoundModels,
    Model,
    Words,
    check_name,
    create_model_in,
    find_models,
)
from det_jupyter.front.notebook.handles import connection


@explains_arguments
def create_model(
    name: str,
    description: str = "",
    *,
    notes: str = "",
    labels: Words = (),
    metadata: Mapping[str, Any] | None = None,
) -> Model:
    """Create a model of the registry, and return a handle on it.

    Args:
        name: A name that no other model has, without `/`.
        description: Purpose of the model.
        notes: Longer text.
        labels: Labels of the model.
        metadata: Anything that JSON can store, by name.

    Raises:
        ConfigError: Everything that is wrong with the arguments.
        Conflict: There is a model of this name.
    """
    client = connection.client()
    view = create_model_in(
        client,
        name,
        description=description,
        notes=notes,
        labels=labels,
        metadata=metadata,
    )
    return Model(client, view.name)


@explains_arguments
def model(name: str) -> Model:
    """Return a handle on a model of the registry.

    Raises:
        NotFound: There is no model of this name.
    """
    client = connection.client()
    return Model(client, client.model(check_name(name)).name)


@explains_arguments
def models(text: str = "", *, label: Words = (), archived: bool = False) -> FoundModels:
    """Return handles on the models of the registry, by name.

    Args:
        text: Words; each must occur in the name or the description.
        label: A label, or several, all of which a model must have.
        archived: Include archived ones.
    """
    client = connection.client()
    return FoundModels(client, find_models(client, text, labels=label, archived=archived))
