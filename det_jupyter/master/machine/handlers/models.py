"""The registry of models: names for the checkpoints that matter, with versions.

A version is a checkpoint that is COMPLETED. While it is registered, its checkpoint is deleted
neither by a policy nor on request (rules/retention.py), and its experiment stays. Deleting the
version releases it, and deletes no file. Numbers of versions are not given twice; a checkpoint is
one version of a model at most.

An alias is a name for one version of its model; giving it to another one takes it from the first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from det_jupyter.contract.messages import (
    CheckpointRef,
    CreateModel,
    DeleteModel,
    DeleteVersion,
    EditModel,
    EditVersion,
    RegisterVersion,
    SetAlias,
    StoredVersion,
)
from det_jupyter.contract.messages.models import LATEST, Details
from det_jupyter.errors import ConfigError, Conflict, NotFound, Problem
from det_jupyter.master.machine.model.state import MachineState, Model
from det_jupyter.master.machine.model.turn import Turn
from det_jupyter.master.machine.rules.labels import change_labels
from det_jupyter.master.machine.rules.retention import usable_checkpoint

_LONGEST_NAME = 100
_MOST_METADATA = 100_000  # characters of JSON


def on_create_model(turn: Turn, event: CreateModel) -> None:
    """Create a model without a version."""
    labels, problems = change_labels((), event.labels, ())
    _raise_if_any([*_name_problems(event.name), *problems, *_metadata_problems(event.metadata)])
    _check_free(turn.state, event.name)
    turn.state.last_model_id += 1
    model = Model.built_from(
        event, id=turn.state.last_model_id, labels=labels, created_at=turn.now, updated_at=turn.now
    )
    turn.state.models[model.id] = model
    turn.changes.models.add(model.id)


def on_edit_model(turn: Turn, event: EditModel) -> None:
    """Change a model's name, description, notes, labels or metadata; archive or unarchive it."""
    model = turn.state.model(event.model)
    changed = _changed(event, model, [] if event.name is None else _name_problems(event.name))
    if event.name is not None and event.name != model.name:
        _check_free(turn.state, event.name)
    _update(turn, model, model, **changed)


def on_delete_model(turn: Turn, event: DeleteModel) -> None:
    """Delete a model with its versions; their checkpoints stay."""
    model = turn.state.model(event.model)
    del turn.state.models[model.id]
    turn.changes.models.add(model.id)


def on_set_alias(turn: Turn, event: SetAlias) -> None:
    """Give an alias to a version, or remove it."""
    model = turn.state.model(event.model)
    if event.number is None:
        if event.alias not in model.aliases:
            known = f"; it has {', '.join(sorted(model.aliases))}" if model.aliases else ""
            raise NotFound(f"model {model.name} has no alias {event.alias}{known}")
        left = {alias: n for alias, n in model.aliases.items() if alias != event.alias}
        _update(turn, model, model, aliases=left)
        return
    _raise_if_any(_alias_problems([event.alias]))
    number = model.version(event.number).number
    _update(turn, model, model, aliases=model.aliases | {event.alias: number})


def on_register_version(turn: Turn, event: RegisterVersion) -> None:
    """Make a checkpoint the next version of a model."""
    model = turn.state.model(event.model)
    if model.is_archived:
        raise Conflict(f"model {model.name} is archived; unarchive it to register versions")
    _check_registrable(turn.state, event.uuid)
    for version in model.versions:
        if version.uuid == event.uuid:
            raise Conflict(
                f"checkpoint {event.uuid} is version {version.number} of model {model.name} "
                "already"
            )
    labels, problems = change_labels((), event.labels, ())
    _raise_if_any(
        [*problems, *_metadata_problems(event.metadata), *_alias_problems(event.aliases)]
    )
    model.last_number += 1
    version = StoredVersion.built_from(
        event, number=model.last_number, labels=labels, created_at=turn.now, updated_at=turn.now
    )
    aliases = model.aliases | dict.fromkeys(event.aliases, version.number)
    _update(turn, model, model, versions=[*model.versions, version], aliases=aliases)


def on_edit_version(turn: Turn, event: EditVersion) -> None:
    """Change a version's name, comment, notes, labels or metadata."""
    model = turn.state.model(event.model)
    version = model.version(event.number)
    _update(turn, model, version, **_changed(event, version))


def on_delete_version(turn: Turn, event: DeleteVersion) -> None:
    """Delete a version with its aliases; its checkpoint is not kept for it any more."""
    model = turn.state.model(event.model)
    version = model.version(event.number)
    aliases = {alias: n for alias, n in model.aliases.items() if n != version.number}
    left = [each for each in model.versions if each is not version]
    _update(turn, model, model, versions=left, aliases=aliases)


def _check_registrable(state: MachineState, uuid: str) -> None:
    found = state.checkpoints.get(uuid)
    if found is None:
        raise NotFound(f"there is no checkpoint {uuid}; `checkpoint list` shows those that are")
    if found.state != "COMPLETED":
        raise Conflict(
            f"checkpoint {uuid} is {found.state}; only one that is COMPLETED can be a version"
        )
    if usable_checkpoint(state, CheckpointRef.built_from(found)) is None:
        raise Conflict(f"checkpoint {uuid} is being deleted, and cannot be a version")


_DETAILS = {"name", "description", "comment", "notes", "is_archived"}


def _changed(
    event: EditModel | EditVersion,
    before: Model | StoredVersion,
    problems: Iterable[Problem] = (),
) -> dict[str, Any]:
    """Return the new values that a request gives.

    Raises:
        ConfigError: It gives none, or wrong ones; with these problems of the caller.
    """
    if not event.given():
        raise ConfigError(["nothing to change: give another name, notes, labels or metadata"])
    labels, of_labels = change_labels(before.labels, event.add_labels, event.remove_labels)
    metadata, of_metadata = _changed_metadata(before.metadata, event)
    _raise_if_any([*problems, *of_labels, *of_metadata])
    plain = event.model_dump(include=_DETAILS, exclude_none=True)
    return plain | {"labels": labels, "metadata": metadata}


def _changed_metadata(
    before: dict[str, Any], change: Details
) -> tuple[dict[str, Any], list[Problem]]:
    both = sorted(change.add_metadata.keys() & set(change.remove_metadata))
    problems = [
        Problem("metadata", f"{key!r} is both to set and to remove; give it once") for key in both
    ]
    kept = {key: v for key, v in before.items() if key not in change.remove_metadata}
    metadata = kept | change.add_metadata
    return metadata, [*problems, *_metadata_problems(metadata)]


def _update(turn: Turn, model: Model, changed: Model | StoredVersion, **values: object) -> None:
    for name, value in values.items():
        setattr(changed, name, value)
    model.updated_at = changed.updated_at = turn.now
    turn.changes.models.add(model.id)


def _check_free(state: MachineState, name: str) -> None:
    if any(model.name == name for model in state.models.values()):
        raise Conflict(f"there is a model {name} already")


def _raise_if_any(problems: list[Problem]) -> None:
    if problems:
        raise ConfigError(problems)


def _name_problems(name: str) -> list[Problem]:
    if _is_word(name):
        return []
    return [
        Problem(
            "name",
            f"got {name!r:.60}, expected 1 to {_LONGEST_NAME} characters on one line, without / "
            "or spaces at the ends, and not only dots",
        )
    ]


def _alias_problems(aliases: Iterable[str]) -> list[Problem]:
    return [
        Problem(
            "alias",
            f"got {alias!r:.60}, expected a name that is no number, not {LATEST!r}, and without /",
        )
        for alias in aliases
        if not _is_word(alias) or alias.isdecimal() or alias == LATEST
    ]


def _is_word(text: str) -> bool:
    """Return whether a text can be a segment of a path, and be typed."""
    is_short = 0 < len(text) <= _LONGEST_NAME
    return (
        is_short
        and text == text.strip()
        and text.isprintable()
        and "/" not in text
        and (text.strip(".") != "")
    )


def _metadata_problems(metadata: dict[str, Any]) -> list[Problem]:
    if (num := len(json.dumps(metadata))) <= _MOST_METADATA:
        return []
    return [
        Problem("metadata", f"{num:,} characters of JSON, expected at most {_MOST_METADATA:,}")
    ]
