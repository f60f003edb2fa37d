"""The `checkpoint_storage` section: one shape for each kind of storage, told apart by `type`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from det_jupyter.config.fields import AbsolutePath, Count, Section, Text


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


class SharedFs(Storage):
    """A folder that all computers see."""

    type: Literal["shared_fs"] = "shared_fs"
    """The kind of storage."""
    host_path: AbsolutePath | None = None
    """Folder that checkpoints go to; if not given, det_jupyter's own data folder."""
    storage_path: Annotated[Text, AfterValidator(_storage_path)] | None = None
    """Folder within host_path, relative or absolute."""

    @property
    def folder(self) -> str | None:
        """The folder that checkpoints go to; None: det_jupyter's own."""
        if self.storage_path is None or self.host_path is None:
            return self.host_path
        if self.storage_path.startswith("/"):
            return self.storage_path
        return f"{self.host_path.rstrip('/')}/{self.storage_path}"


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

    @property
    def folder(self) -> str:
        """The folder that checkpoints go to."""
        return self.container_path


CheckpointStorage = Annotated[SharedFs | Directory, Field(discriminator="type")]
