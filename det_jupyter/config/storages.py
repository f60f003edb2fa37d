"""The `checkpoint_storage` section: one class for each kind of storage, selected by `type`.

A folder can replace a storage that this version cannot write to, so that a file with s3, gcs,
azure or hdfs runs unchanged:

    --checkpoint-storage FOLDER                     of a submission: `with_storage`
    DET_JUPYTER_CHECKPOINT_STORAGE=FOLDER           of the master: `with_default_storage`
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from det_jupyter.config.merging import merge
from det_jupyter.contract.schema.fields import AbsolutePath, Count, Ignored, Section, Text
from det_jupyter.contract.schema.key_paths import look_up, section

VARIABLE = "DET_JUPYTER_CHECKPOINT_STORAGE"
UNWRITABLE = ("s3", "gcs", "azure", "hdfs")
WAYS_OUT = (
    f"submit it with --checkpoint-storage FOLDER, start the master with {VARIABLE}=FOLDER, or "
    "write {type: directory, container_path: FOLDER}"
)


def _storage_path(value: str) -> str:
    if ".." in value.split("/"):
        raise PydanticCustomError("storage_path", "expected a path without ..")
    return value


class Storage(Section):
    """The keys that all kinds of storage have."""

    save_experiment_best: Count = 0
    """Checkpoints of the best validations of the experiment that are kept."""
    save_trial_best: Count = 1
    """Checkpoints of the best validations of each trial that are kept."""
    save_trial_latest: Count = 1
    """Latest checkpoints of each trial that are kept."""

    @property
    def location(self) -> str | None:
        """The location of checkpoints; see `location_of`."""
        return self.locate(dict(self))  # model_dump would build a serializer: 9 ms in every rank

    @staticmethod
    def locate(storage: Mapping[str, Any]) -> str | None:
        """Return the location in a section of this kind; see `location_of`."""
        raise NotImplementedError


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

    @staticmethod
    def locate(storage: Mapping[str, Any]) -> str | None:
        """Return the folder within host_path; None if no host_path is given."""
        host_path: str | None = storage.get("host_path")
        storage_path: str | None = storage.get("storage_path")
        if storage_path is None or host_path is None:
            return host_path
        if storage_path.startswith("/"):
            return storage_path
        return f"{host_path.rstrip('/')}/{storage_path}"


class Directory(Storage):
    """A folder."""

    type: Literal["directory"]
    """The kind of storage."""
    container_path: AbsolutePath
    """Folder that checkpoints go to."""

    @property
    def host_path(self) -> str:
        """The folder, under the name that it has in shared_fs."""
        return self.container_path

    @staticmethod
    def locate(storage: Mapping[str, Any]) -> str | None:
        """Return the folder, whose key was host_path in our first version."""
        folder: str | None = storage.get("container_path", storage.get("host_path"))
        return folder


CheckpointStorage = Annotated[SharedFs | Directory, Field(discriminator="type")]
_KINDS: tuple[type[Storage], ...] = get_args(get_args(CheckpointStorage)[0])
_BY_TYPE = {get_args(kind.model_fields["type"].annotation)[0]: kind for kind in _KINDS}
# The keys of all kinds that determine the location.
LOCATING = tuple(
    dict.fromkeys(
        key
        for kind in _KINDS
        for key in kind.model_fields
        if key not in Storage.model_fields and key not in kind.ignored_keys()
    )
)


def location_of(storage: Mapping[str, Any]) -> str | None:
    """Return the location of checkpoints, from an effective `checkpoint_storage` section.

    The section may be that of a stored experiment of any version, so it is never refused: existing
    checkpoints must be found, and deleted.

    Returns:
        A folder, or scheme://... of another kind of storage, as `storage.open_storage` takes it;
        None: det_jupyter's own folder.
    """
    return _BY_TYPE.get(storage.get("type", ""), SharedFs).locate(storage)


def with_storage(document: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Return a configuration whose checkpoints go to a folder, whatever its template has.

    The numbers of checkpoints to keep are not changed. This function applies `--checkpoint-storage
    FOLDER`, before the document is parsed and sent.

    Args:
        document: What the user wrote.
        folder: An absolute path; `parse_config` refuses a relative one.
    """
    given = section(document, "checkpoint_storage")
    kept = {key: given[key] for key in Storage.model_fields if key in given}
    return {
        **document,
        "checkpoint_storage": {"type": "directory", "container_path": folder, **kept},
    }


def unwritable_storage(document: Mapping[str, Any], template: Mapping[str, Any]) -> str:
    """Return the kind of a configuration's storage if we cannot write to it, else ""."""
    storages = [{"checkpoint_storage": d.get("checkpoint_storage")} for d in (template, document)]
    kind = look_up(merge(*storages), "checkpoint_storage.type")
    return kind if kind in UNWRITABLE else ""


def with_default_storage(
    document: Mapping[str, Any], template: Mapping[str, Any], folder: str
) -> tuple[dict[str, Any], list[str]]:
    """Return a configuration with the master's folder, if we cannot write to its storage.

    Also returns a notice about it, if so.

    Args:
        document: What the user wrote.
        template: The template that it is merged over; empty if there is none.
        folder: An absolute path; "": the master has none.
    """
    kind = unwritable_storage(document, template)
    if not folder or not kind:
        return dict(document), []
    notice = f"checkpoint_storage: {kind} has no backend here; checkpoints go to {folder}, as "
    return with_storage(document, folder), [f"{notice}the master's {VARIABLE} says."]
