"""Copies checkpoints to another storage, and moves them there (master/machine/rules/moving.py)."""

from __future__ import annotations

import os
from pathlib import Path

from det_jupyter.contract.messages import CheckpointView
from det_jupyter.errors import CheckpointError
from det_jupyter.storage import (
    CheckpointStorage,
    find_checkpoint,
    folder_at,
    open_storage,
    path_of,
)
from det_jupyter.storage.copies import find_outer_checkpoint


def storage_at(given: str) -> CheckpointStorage:
    """Return the storage at a folder, or at the location of a bucket.

    Raises:
        CheckpointError: It is neither.
    """
    folder = folder_at(given)
    location = given.rstrip("/") if folder is None else str(folder.absolute())
    return open_storage(location, Path())


def check_target(given: str) -> str:
    """Check that checkpoints can be written to a folder or a bucket, and return its location.

    Raises:
        CheckpointError: They cannot.
    """
    storage = storage_at(given)
    if outer := find_outer_checkpoint(storage.location):
        raise CheckpointError(
            f"{storage.location} is in the checkpoint {outer}, with which it would be deleted; "
            "choose another folder"
        )
    storage.check_writable()
    return storage.location


def copied_path(view: CheckpointView, location: str) -> str:
    """Return the path of the copy of a checkpoint in another storage."""
    return path_of(open_storage(location, Path()), view.uuid)


def copy_checkpoint(view: CheckpointView, location: str) -> bool:
    """Copy the files of a checkpoint to a storage; return whether they were not there before.

    Repeatable: an interrupted copy is no checkpoint.

    Raises:
        CheckpointError: The checkpoint is not stored, or damaged, or cannot be written there, or
            another of its name is there.
    """
    (storage, uuid), to = find_checkpoint(view.path), open_storage(location, Path())
    files, there = storage.files(uuid), to.files(uuid)
    if view.state == "DELETED" or not files:
        raise CheckpointError(f"checkpoint {uuid}: {view.path} is not there any more")
    if not there:
        try:
            with storage.reading(uuid) as folder:
                _check_links(folder)
                to.store(uuid, folder)
        except OSError as error:
            where = error.filename or to.location
            raise CheckpointError(f"checkpoint {uuid}: {where}: {error.strerror}") from None
    if to.files(uuid) != files:
        raise CheckpointError(f"checkpoint {uuid}: {to.location} has other files of this name")
    return not there


def _check_links(folder: Path) -> None:
    """Check that all files are in the folder itself: a link may lead elsewhere from a copy."""
    for parent, folders, files in os.walk(folder):
        for path in (Path(parent, name) for name in [*folders, *files]):
            if path.is_symlink():
                raise CheckpointError(
                    f"checkpoint {folder.name}: {path.relative_to(folder)} is a link; put "
                    "the file in its place, then copy again"
                )
