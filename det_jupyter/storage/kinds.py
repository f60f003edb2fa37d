"""The kinds of storage. A new kind is a file beside this one, and a line in `KINDS`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from det_jupyter.contract.values.bucket_urls import is_in_bucket
from det_jupyter.errors import CheckpointError
from det_jupyter.storage.buckets.storage import BucketStorage, copies_dir
from det_jupyter.storage.contract import CheckpointStorage
from det_jupyter.storage.directory import DirectoryStorage, existing

# By the scheme of a location (see contract.py): the function that opens the storage.
KINDS: dict[str, Callable[[str], CheckpointStorage]] = {
    "": lambda location: DirectoryStorage(Path(location).expanduser()),
    **dict.fromkeys(("s3", "s3+http", "s3+https", "gs", "azure"), BucketStorage),
}


def open_storage(location: str | None, data_dir: Path) -> CheckpointStorage:
    """Return the storage at a location.

    Args:
        location: As `config.storages.location_of` returns it; None: a folder in `data_dir`.
        data_dir: det_jupyter's own data folder.

    Raises:
        CheckpointError: No kind of storage has the location's scheme.
    """
    if location is None:
        return DirectoryStorage(data_dir / "checkpoints", is_own=True)
    scheme = _scheme_of(location)
    if scheme not in KINDS:
        raise CheckpointError(
            f"checkpoint_storage: {location} cannot be opened: {scheme} has no backend here"
        )
    return KINDS[scheme](location)


def open_storage_of_ranks(location: str | None, data_dir: Path) -> CheckpointStorage:
    """Return the storage that ranks of an experiment write to; see `open_storage`.

    If it is a bucket, that is the folder from which their agent uploads.
    """
    if is_in_bucket(location):
        return DirectoryStorage(copies_dir(data_dir), is_own=True)
    return open_storage(location, data_dir)


def find_checkpoint(path: str) -> tuple[CheckpointStorage, str]:
    """Return the storage and the uuid for a checkpoint's path, as `path_of` returns it."""
    location, _, uuid = path.rpartition("/")
    return open_storage(location or "/", Path()), uuid


@contextmanager
def reading(path: str) -> Iterator[Path]:
    """Yield a folder with the files of the checkpoint at a path, for reading only.

    Args:
        path: As `path_of` returns it; or any folder that a checkpoint was copied into.

    Raises:
        CheckpointError: The storage has no such checkpoint, or cannot be reached.
    """
    folder = folder_at(path)
    if folder is not None:
        yield existing(folder)
        return
    storage, uuid = find_checkpoint(path)
    with storage.reading(uuid) as copied:
        yield copied


def folder_at(location: str) -> Path | None:
    """Return a location or a checkpoint's path as a Path; None if it is not a folder."""
    return None if _scheme_of(location) else Path(location).expanduser()


def _scheme_of(location: str) -> str:
    match = re.match(r"([a-z][a-z0-9+.-]*)://", location)
    return match[1] if match else ""
