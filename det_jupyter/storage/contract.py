"""What a kind of storage implements. Where a checkpoint is, only the storage interprets.

location       names a storage, as the configuration says: a folder, or scheme://...
path           of a checkpoint: location/uuid, as text; it is recorded, shown, and opened by
               `find_checkpoint` (kinds.py)
folder         on this computer, to write a checkpoint into or to read it from, for a while
metadata.json  in each checkpoint: with it, all of its files are there
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from det_jupyter.errors import CheckpointError


class StorageDraft(Protocol):
    """A checkpoint in the making. Used by one thread at a time, not always the same one.

    Until `commit` returns, the checkpoint cannot be found, whatever ends the process. The methods
    raise an OSError if this computer's disk fails, and a CheckpointError if the storage does.
    """

    @property
    def path(self) -> Path:
        """A folder on this computer, empty at first: what is in it becomes the checkpoint."""

    def sync(self) -> None:
        """Store what is in the folder by now, so that `commit` has less to wait for."""

    def commit(self) -> None:
        """Make the folder's content the checkpoint. The folder is not used any more."""

    def discard(self) -> None:
        """Remove the draft; does nothing after `commit`, or when called twice."""


class CheckpointStorage(Protocol):
    """Keeps checkpoints by uuid. One that can be found is complete, and does not change.

    An object is used by one thread at a time; any number of processes use the same storage at
    once. Each method may be repeated. All of them raise a CheckpointError if the storage cannot be
    reached, or the uuid is not the name of a checkpoint (`is_name`).
    """

    @property
    def location(self) -> str:
        """What `open_storage` opens the storage by."""

    def check_writable(self) -> None:
        """Make sure that checkpoints can be written, before hours are spent. Leaves nothing there.

        Raises:
            CheckpointError: They cannot, and why.
        """

    def begin(self, uuid: str) -> StorageDraft:
        """Return a draft of a checkpoint. If the process dies with it, it never existed."""

    def reading(
        self, uuid: str, takes: Callable[[str], bool] | None = None
    ) -> AbstractContextManager[Path]:
        """Give a folder on this computer with files of the checkpoint, for reading only.

        Files that were opened or mapped stay valid after the block.

        Args:
            uuid: The checkpoint.
            takes: Returns whether a file is needed, by its path in the checkpoint; others, too,
                may be in the folder. None: all are needed.

        Raises:
            CheckpointError: There is no such checkpoint.
        """

    def files(self, uuid: str) -> dict[str, int]:
        """Return the files of a checkpoint by their paths in it, sorted, with sizes in bytes.

        Empty if there is no such checkpoint.
        """

    def delete(self, uuid: str, globs: Sequence[str] = ()) -> int:
        """Remove a checkpoint, or those of its files that patterns match; it may be gone already.

        metadata.json goes with the last of the other files.

        Args:
            uuid: The checkpoint.
            globs: Patterns of files (globs.py); none: all of it.

        Returns:
            The size of what is left in bytes, 0 if the checkpoint is gone.

        Raises:
            CheckpointError: What is there is no checkpoint of this name, and is left alone; or it
                cannot be removed, or not all of it.
        """

    def remove_leftovers(self) -> None:
        """Remove what writers that were killed have left; what is being written stays."""


def is_name(uuid: str) -> bool:
    """Return whether this can be the name of a checkpoint, in any storage."""
    return bool(uuid) and not uuid.startswith(".") and "/" not in uuid


def path_of(storage: CheckpointStorage, uuid: str) -> str:
    """Return where a checkpoint is, as it is recorded and shown."""
    return f"{storage.location.rstrip('/')}/{uuid}"


METADATA_FILE = "metadata.json"


def read_metadata(path: Path) -> dict[str, Any]:
    """Return the metadata of the checkpoint in this folder.

    Raises:
        CheckpointError: The folder is not a checkpoint.
    """
    try:
        metadata: dict[str, Any] = json.loads((path / METADATA_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} is not a checkpoint: it has no {METADATA_FILE}") from None
    except ValueError as error:
        raise CheckpointError(f"{path / METADATA_FILE} is damaged: {error}") from None
    return metadata
