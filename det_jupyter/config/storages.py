"""The `checkpoint_storage` section: one shape for each kind of storage, told apart by `type`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from det_jupyter.config.fields import AbsolutePath, Count, Ignored, Section, Text


def _storage_path(value: str) -> str:
    if ".." in value.split("/"):
        raise PydanticCustomError("storage_path", "expected a path without ..")
    return value


class Storage(Section):
    """What all kinds of storage have."""

    save_experiment_best: Count = 0
    """Checkpoints of the best validations of the experiment that are kept."""
    save_trial_best: Count = 1
    """Checkpoints of the best validations of each trial that are kept."""
    save_trial_latest: Count = 1
    """Latest checkpoints of each trial that are kept."""

    @property
    def folder(self) -> str | None:
        """The folder that checkpoints go to; None: det_jupyter's own."""
        return folder_of(dict(self))  # model_dump would build a serializer: 9 ms in every rank


class SharedFs(Storage):
    """A folder that all computers see."""

    type: Literal["shared_fs"] = "shared_fs"
    """The kind of storage."""
    host_path: AbsolutePath | None = None
    """Folder that checkpoints go to; if not given, det_jupyter's own data folder."""
    storage_path: Annotated[Text, AfterValidator(_storage_path)] | None = None
    """Folder within host_path, relative or absolute."""
    propagation: Ignored = None
    container_path: Ignored = None
    checkpoint_path: Ignored = None
    tensorboard_path: Ignored = None


class Directory(Storage):
    """A folder."""

    type: Literal["directory"]
    """The kind of storage."""
    container_path: AbsolutePath
    """Folder that checkpoints go to."""

    @property
    def host_path(self) -> str:
        """The folder, by the name that shared_fs has for it."""
        return self.container_path


CheckpointStorage = Annotated[SharedFs | Directory, Field(discriminator="type")]


def folder_of(storage: Mapping[str, Any]) -> str | None:
    """Return the folder of an effective `checkpoint_storage` section; None: det_jupyter's own.

    It reads what a stored experiment says, of whatever version, and so never refuses a section:
    checkpoints must be found, and deleted, for as long as they are there.
    """
    host_path: str | None = storage.get("host_path")
    if storage.get("type") == "directory":
        folder: str | None = storage.get("container_path", host_path)  # as it was called at first
        return folder
    storage_path: str | None = storage.get("storage_path")
    if storage_path is None or host_path is None:
        return host_path
    if storage_path.startswith("/"):
        return storage_path
    return f"{host_path.rstrip('/')}/{storage_path}"
