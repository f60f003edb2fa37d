"""The protocol of a kind of storage. Only the storage itself interprets locations and paths.

location       of a storage, as in the configuration: a folder, or scheme://...
path           of a checkpoint: location/uuid, as text; it is recorded, shown, and opened by
               `find_checkpoint` (kinds.py)
folder         on this computer, that a checkpoint is written into or read from, for a while
metadata.json  in each checkpoint, with its uuid and metadata; a folder that has it has all files
                   of the checkpoint
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from det_jupyter.contract.host.regular_files import read_regular
from det_jupyter.errors import CheckpointError


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFiles:
    """A checkpoint in a storage, as its files show it.

    Args:
        uuid: Its name.
        num_bytes: Size of its files.
        stored_at: When it was stored.
        problem: What is damaged or missing in it; "": nothing.
    """

    uuid: str
    num_bytes: int
    stored_at: float
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """Files of a writer that was killed, in a storage.

    Args:
        name: Name of their folder in the storage.
        num_bytes: Their size.
        num_files: How many they are.
        changed_at: When one of them was last written.
    """

    name: str
    num_bytes: int
    num_files: int
    changed_at: float


class StorageDraft(Protocol):
    """A checkpoint that is being written. Threads may use it in turn, but not at once.

    The checkpoint cannot be found before `commit`, even if the process is killed. The methods
    raise an OSError if this computer's disk fails, and a CheckpointError if the storage does.
    """

    @property
    def path(self) -> Path:
        """A folder on this computer, empty at first; `commit` stores its content."""

    def sync(self) -> None:
        """Store the present files of the folder, so that `commit` takes less time."""

    def commit(self) -> None:
        """Make the folder's content the checkpoint. The folder must not be used afterwards."""

    def become_share(self) -> Path:
        """Make `commit` keep the files apart, for an agent that uploads them.

        The draft has the files of ranks on this computer. Ranks on computers that cannot see the
        draft have written the other files of the checkpoint. The master commits the checkpoint
        when all of them are uploaded.

        Returns:
            The folder that has the files after `commit`.

        Raises:
            CheckpointError: Files of this storage are not uploaded: all computers have to share
                its folder.
        """

    def discard(self) -> None:
        """Remove the draft; does nothing after `commit`, or when called twice."""


class CheckpointStorage(Protocol):
    """Stores checkpoints by uuid. A checkpoint that can be found is complete and never changes.

    An object is used by one thread at a time; any number of processes use the same storage at
    once. Each method may be repeated. All of them raise a CheckpointError if the storage cannot be
    reached, or the uuid is not the name of a checkpoint (`is_name`).
    """

    @property
    def location(self) -> str:
        """The location with which `open_storage` opens this storage."""

    def check_writable(self) -> None:
        """Check that checkpoints can be written, before training begins. Leaves no files.

        Raises:
            CheckpointError: Checkpoints cannot be written; the message has the cause.
        """

    def begin(self, uuid: str) -> StorageDraft:
        """Return a draft of a new checkpoint, which does not exist before the draft's `commit`."""

    def draft_path(self, uuid: str) -> Path | None:
        """Return the folder of a draft that a process on any computer has begun.

        None if there is no such draft, or if this computer cannot see its folder.
        """

    def reading(
        self, uuid: str, takes: Callable[[str], bool] | None = None
    ) -> AbstractContextManager[Path]:
        """Yield a folder on this computer with files of the checkpoint, for reading only.

        Files that were opened or mapped stay valid after the block.

        Args:
            uuid: The checkpoint.
            takes: Returns whether a file is needed, by its path in the checkpoint; the folder may
                contain others too. None: all are needed.

        Raises:
            CheckpointError: There is no such checkpoint.
        """

    def files(self, uuid: str) -> dict[str, int]:
        """Return the sizes in bytes of a checkpoint's files, by path in the checkpoint, sorted.

        Empty if there is no such checkpoint.
        """

    def delete(self, uuid: str, globs: Sequence[str] = ()) -> int:
        """Remove a checkpoint, or its files that match patterns. Does nothing if there is none.

        metadata.json is removed with the last of the other files.

        Args:
            uuid: The checkpoint.
            globs: Patterns of files (globs.py); empty: the whole checkpoint.

        Returns:
            The size of the remaining files in bytes, 0 if the checkpoint is gone.

        Raises:
            CheckpointError: The files of that name are not a checkpoint, and are kept; or not all
                files can be removed.
        """

    def store(self, uuid: str, folder: Path) -> None:
        """Make a copy of a folder's files a checkpoint, which does not exist before.

        If it was interrupted, it can be repeated.
        """

    def scan(self) -> list[CheckpointFiles]:
        """Return the checkpoints in this storage, also damaged and incomplete ones, by name."""

    def remove_leftovers(self) -> None:
        """Remove drafts of writers that were killed; those that may be in use stay."""

    def sweep(self, age_s: float, remove: Collection[str] = ()) -> list[Leftover]:
        """Return what killed writers have left; of it, remove that with the names in `remove`.

        Drafts in use are left out. Where a use cannot be seen, as in buckets, so is what was
        written in the last `age_s` seconds, by the clock of the storage.
        """

    def probe(self) -> AbstractContextManager[str]:
        """Put an empty file beside the checkpoints, yield its name, and remove it."""

    def has(self, name: str) -> bool:
        """Return whether there is a file of this name: that of a probe, or UUID/FILE."""


def is_name(uuid: str) -> bool:
    """Return whether a text can be the name of a checkpoint, in any storage."""
    return bool(uuid) and not uuid.startswith(".") and "/" not in uuid


def path_of(storage: CheckpointStorage, uuid: str) -> str:
    """Return the path of a checkpoint, as it is recorded and shown."""
    return f"{storage.location.rstrip('/')}/{uuid}"


METADATA_FILE = "metadata.json"


def read_metadata(path: Path) -> dict[str, Any]:
    """Return the metadata of the checkpoint in this folder.

    Raises:
        CheckpointError: The folder is not a checkpoint.
    """
    try:
        metadata: dict[str, Any] = json.loads(read_regular(path / METADATA_FILE))
    except FileNotFoundError:
        raise CheckpointError(f"{path} is not a checkpoint: it has no {METADATA_FILE}") from None
    except OSError as error:
        raise CheckpointError(f"{path / METADATA_FILE}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path / METADATA_FILE} is damaged: {error}") from None
    return metadata
