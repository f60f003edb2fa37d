"""Verbs about the registry of models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from det_jupyter.client.handles.checkpoint import Checkpoint, find_best_checkpoint
from det_jupyter.client.handles.models import (
    Model,
    aliases_text,
    create_model_in,
    find_models,
    version_line,
)
from det_jupyter.contract.messages import ModelView, VersionView
from det_jupyter.contract.values.text import count, date, number
from det_jupyter.errors import ConfigError, UsageError
from det_jupyter.front.verbs.grammar import Call, usage_errors
from det_jupyter.front.verbs.lifecycle import confirm
from det_jupyter.front.verbs.listings import Cell, Listing, cell_text, render

_HEADER = ("Name", "Versions", "Aliases", "Labels", "Description", "Updated", "Archived")
_VERSIONS = ("Version #", "Name", "Aliases", "Metric", "Value", "Experiment ID", "Trial ID",
             "# of Batches", "UUID", "Created", "Comment")  # fmt: skip


def list_models(call: Call) -> str:
    """Return a row for each model, by name."""
    given = call.options
    found = find_models(
        call.client, " ".join(given.text), labels=given.label, archived=given.archived
    )
    rows: list[list[Cell]] = [
        [
            view.name,
            len(view.versions),
            aliases_text(view),
            ", ".join(view.labels),
            view.description,
            date(view.updated_at),
            view.is_archived,
        ]
        for view in found
    ]
    if_empty = f"No models; `{call.reader.det} model create NAME` makes one."
    return render(Listing(header=_HEADER, rows=rows, if_empty=if_empty), given)


def create(call: Call) -> str:
    """Create a model without a version."""
    given = call.options
    view = create_model_in(
        call.client,
        given.model,
        description=given.description,
        notes=given.notes,
        labels=given.label,
        metadata=dict(given.metadata),
    )
    command = f"{call.reader.det} model register-version {view.name} UUID"
    return f"Model {view.name} is created; `{command}` registers a checkpoint as its version 1."


def describe(call: Call) -> str:
    """Return what is stored of a model or of one of its versions."""
    given, view = call.options, call.client.model(call.options.model)
    version = None if given.version is None else view.version(given.version)
    if given.json:
        document = (view if version is None else version).model_dump(mode="json")
        return json.dumps(document, indent=2, ensure_ascii=False)
    if version is not None:
        return _facts(_of_version(view, version))
    lines = [version_line(view, each) for each in view.versions]
    return "\n".join([_facts(_of_model(view)), *([""] if lines else []), *lines])


def _of_model(view: ModelView) -> dict[str, Any]:
    return {
        "Name": view.name,
        "Description": view.description,
        "Notes": view.notes,
        "Labels": ", ".join(view.labels),
        "Metadata": view.metadata or None,
        "Aliases": aliases_text(view),
        "Created": date(view.created_at),
        "Updated": date(view.updated_at),
        "Archived": view.is_archived,
        "Versions": len(view.versions),
    }


def _of_version(view: ModelView, version: VersionView) -> dict[str, Any]:
    checkpoint = version.checkpoint
    return {
        "Model": view.name,
        "Version #": version.number,
        "Name": version.name,
        "Aliases": ", ".join(view.aliases_of(version.number)),
        "Comment": version.comment,
        "Notes": version.notes,
        "Labels": ", ".join(version.labels),
        "Metadata": version.metadata or None,
        "Created": date(version.created_at),
        "Experiment": f"{checkpoint.experiment_id} ({version.experiment})",
        "Trial ID": checkpoint.trial_id,
        "# of Batches": checkpoint.steps_completed,
        version.metric or "Metric": checkpoint.searcher_metric,
        "Hyperparameters": version.hparams or None,
        "Checkpoint ID": version.uuid,
        "State": checkpoint.state,
        "Path": checkpoint.path,
    }


def _facts(rows: dict[str, Any]) -> str:
    width = max(map(len, rows))
    return "\n".join(
        f"{name.ljust(width)}  {cell_text(None if value == '' else value)}"
        for name, value in rows.items()
    )


def list_versions(call: Call) -> str:
    """Return a row for each version of a model, oldest first."""
    view = call.client.model(call.options.model)
    listing = Listing(
        header=_VERSIONS,
        rows=[_version_row(view, each, is_data=False) for each in view.versions],
        data=[_version_row(view, each, is_data=True) for each in view.versions],
        if_empty=f"Model {view.name} has no version yet.",
    )
    return render(listing, call.options)


def _version_row(view: ModelView, version: VersionView, *, is_data: bool) -> list[Cell]:
    checkpoint = version.checkpoint
    value = checkpoint.searcher_metric
    return [
        version.number,
        version.name,
        ", ".join(view.aliases_of(version.number)),
        version.metric,
        value if is_data or value is None else number(value),
        checkpoint.experiment_id,
        checkpoint.trial_id,
        checkpoint.steps_completed,
        version.uuid,
        date(version.created_at),
        version.comment,
    ]


def register(call: Call) -> str:
    """Make a checkpoint the next version of a model."""
    given, client = call.options, call.client
    if given.experiment is not None:
        checkpoint = find_best_checkpoint(client, client.experiment(given.experiment)).uuid
    else:
        checkpoint = given.uuid
    version = Model(client, given.model).register_version(
        checkpoint,
        name=given.title,
        comment=given.comment,
        notes=given.notes,
        labels=given.label,
        metadata=dict(given.metadata),
        alias=given.alias,
    )
    view = client.model(given.model)
    return f"Registered {version_line(view, view.version(version.number))}."


def edit(call: Call) -> str:
    """Change what is stored of a model, or with --version of one of its versions."""
    given = call.options
    changes = {
        "name": given.title,
        "notes": given.notes,
        "add_labels": given.add_label,
        "remove_labels": given.remove_label,
        "add_metadata": dict(given.metadata),
        "remove_metadata": given.remove_metadata,
    }
    model = Model(call.client, given.model)
    try:
        if given.version is not None:
            if given.description is not None:
                raise UsageError(f"{given.words}: a version has no description; give --comment")
            model.version(given.version).edit(**changes, comment=given.comment)
            return f"Version {given.version} of model {model.name} is changed."
        if given.comment is not None:
            raise UsageError(f"{given.words}: --comment is of a version; give --version, too")
        model.edit(**changes, description=given.description)
    except ConfigError as error:
        raise UsageError(f"{given.words}: {error}") from None
    return f"Model {model.name} is changed."


def archive(call: Call) -> str:
    """Hide a model from lists, or show it there again."""
    model = Model(call.client, call.options.model)
    if call.options.verb.name == "archive":
        model.archive()
        return f"Model {model.name}: hidden from lists."
    model.unarchive()
    return f"Model {model.name}: shown in lists again."


def set_alias(call: Call) -> str:
    """Give an alias to a version, or to the newest one."""
    given = call.options
    version = call.client.model(given.model).version(given.version)
    Model(call.client, given.model).set_alias(given.alias, version.number)
    return f"{given.alias} of model {given.model} is version {version.number}."


def remove_alias(call: Call) -> str:
    """Remove an alias of a model."""
    given = call.options
    Model(call.client, given.model).remove_alias(given.alias)
    return f"Model {given.model} has no alias {given.alias} any more."


def delete(call: Call) -> str:
    """Delete a model or one of its versions, after a confirmation; checkpoints stay."""
    given, view = call.options, call.client.model(call.options.model)
    model = Model(call.client, view.name)
    if given.version is not None:
        number = view.version(given.version).number
        what, stays = f"version {number} of model {view.name}", "its checkpoint stays"
    else:
        what = f"model {view.name} with {count(len(view.versions), 'version')}"
        stays = "their checkpoints stay"
    if not confirm(f"Delete {what}? {stays[0].upper()}{stays[1:]}.", given):
        return "Nothing is deleted."
    if given.version is not None:
        model.version(number).delete()
    else:
        model.delete()
    return f"Deleted {what}; {stays}, and may be deleted from now on."


def download(call: Call) -> str:
    """Copy the checkpoint of a version."""
    given = call.options
    version = call.client.model(given.model).version(given.version)
    checkpoint = Checkpoint(version.checkpoint, Path(call.client.session.info.data_dir))
    path = checkpoint.download(given.output_dir)
    if given.quiet:
        return str(path)
    return f"Copied version {version.number} of model {given.model} to {path}"


def push(call: Call) -> str:
    """Write a version for others: into a folder, or to MLflow."""
    given = call.options
    version = Model(call.client, given.model).version(given.version)
    with usage_errors(given):
        place = version.push(
            given.to,
            folder=given.output_dir,
            tracking_uri=given.tracking_uri,
            safetensors=given.safetensors,
        )
    return f"Wrote version {version.number} of model {given.model} to {place}"
