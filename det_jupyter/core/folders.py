"""Listing and copying folders, whole or by a selector."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from det_jupyter.errors import CheckpointError

# Called with a path relative to the folder, with "/" as separator; that of a folder ends with "/".
Selector = Callable[[str], bool]
Folder = str | os.PathLike[str]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FolderListing:
    """Files and folders in a folder, by their relative paths."""

    files: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()


def list_folder(where: str, folder: object, selector: Selector | None = None) -> FolderListing:
    """Return the selected files and folders below a folder. Symbolic links are followed.

    Args:
        where: Name of the calling method, for messages.
        folder: The folder.
        selector: Returns whether to include a path; None: all. Folders that are not selected are
            searched too; one that cannot be read is skipped, with a warning.

    Raises:
        CheckpointError: There is no such folder, or a selected path cannot be read.
    """
    root = _check_folder(where, folder)
    if selector is not None and not callable(selector):
        raise ValueError(
            f"{where}: selector: got {type(selector).__name__}, expected a function of a path"
        )
    takes = selector or (lambda path: True)
    files: set[str] = set()
    folders: set[str] = set()

    def refuse(error: OSError) -> None:  # by default os.walk skips such a folder
        if error.filename == root or _relative(error.filename, root) in folders:
            raise CheckpointError(f"{where}: {error.filename} cannot be read: {error.strerror}")
        # Its files are unknown, so the selector cannot be called for them.
        logger.warning(
            "%s: %s cannot be read (%s) and is not selected, so its content is left out",
            *(where, error.filename, error.strerror),
        )

    for parent, inner, names in os.walk(root, onerror=refuse, followlinks=True):
        prefix = "" if parent == root else f"{_relative(parent, root)}/"
        folders.update(prefix + name for name in inner if takes(f"{prefix}{name}/"))
        for name in [name for name in inner if _leads_back(os.path.join(parent, name))]:
            if prefix + name in folders:
                raise CheckpointError(
                    f"{where}: {prefix}{name} in {folder} is a link to a folder that it is in"
                )
            inner.remove(name)
        for name in [name for name in names if takes(prefix + name)]:
            if not os.path.exists(os.path.join(parent, name)):
                raise CheckpointError(f"{where}: {prefix}{name} in {folder} is a link to nothing")
            if not os.path.isfile(os.path.join(parent, name)):
                raise CheckpointError(
                    f"{where}: {prefix}{name} in {folder} is no regular file (a pipe, socket or "
                    "device); remove it"
                )
            files.add(prefix + name)
    return FolderListing(frozenset(files), frozenset(folders))


def _relative(path: str, root: str) -> str:
    return os.path.relpath(path, root).replace(os.sep, "/")


def _leads_back(path: str) -> bool:
    """Return whether a path is a link to one of its own parent folders."""
    if not os.path.islink(path):
        return False
    return Path(path).parent.resolve().is_relative_to(Path(path).resolve())


def _check_folder(where: str, folder: object) -> str:
    if not isinstance(folder, (str, os.PathLike)):
        remedy = (
            "" if folder is not None else "; with shard=True, a rank that has nothing gives it"
        )
        raise CheckpointError(
            f"{where}: got {folder!r:.60}, expected the path of a folder{remedy}"
        )
    if not os.path.isdir(folder):
        found = "is a file" if os.path.exists(folder) else "does not exist"
        raise CheckpointError(
            f"{where}: {os.fspath(folder)!r} {found}, expected a folder (the current one is "
            f"{os.getcwd()})"
        )
    return os.fspath(folder)


def copy_files(source: Folder, target: Folder, found: FolderListing) -> None:
    """Copy the listed files and folders into another folder, which is created if necessary."""
    target = Path(target)
    target.mkdir(parents=True, exist_ok=True)
    _make_folders(target, found)
    for name in found.files:
        shutil.copy2(Path(source, name), target / name)


def remove_files(folder: Path, found: FolderListing) -> None:
    """Remove the listed files that are there; folders stay."""
    for name in found.files:
        (folder / name).unlink(missing_ok=True)


def move_files(source: Path, target: Path, found: FolderListing) -> None:
    """Move the listed files, and create the folders, in a folder on the same file system."""
    _make_folders(target, found)
    for name in found.files:
        (source / name).rename(target / name)


def _make_folders(target: Path, found: FolderListing) -> None:
    for name in found.folders.union(os.path.dirname(name) for name in found.files):
        (target / name).mkdir(parents=True, exist_ok=True)


def digest_of(file: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal digits."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
