"""Stores checkpoints in a local or shared folder; each is either complete or absent.

    <root>/<uuid>/             a complete checkpoint
    <root>/.part-<uuid>/       one being written; renamed when every byte of it is on the disk
                               (hard links: only their folder, see `_sync_tree`)
    <root>/.share-<uuid>/      files of a checkpoint of several computers, which an agent uploads

A writer locks its scratch folder while it lives (folder_locks.py). An unlocked scratch folder is
therefore a leftover. It is removed by the next writer, when the master starts, and when an
experiment is deleted; on a drive that other computers may have, whose locks are perhaps not seen,
once it is a day old.

To delete a checkpoint, its folder is first renamed to `.part-deleted-<uuid>`: a folder that cannot
be removed completely is then a leftover.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryFile
from typing import TypeAlias

from det_jupyter.errors import CheckpointError
from det_jupyter.storage.contract import (
    METADATA_FILE,
    CheckpointFiles,
    Leftover,
    is_name,
    read_metadata,
)
from det_jupyter.storage.folder_locks import OpenFolder, make_locked, shows_all_locks, try_lock
from det_jupyter.storage.globs import matching

_SCRATCH = ".part-"
_DELETED = f"{_SCRATCH}deleted-"
_SETTLED_S = 86_400.0  # age of a scratch folder that no writer has
_SHARE = ".share-"
# Only in det_jupyter's own folders. Of the copies of a bucket's checkpoints: one that is being
# fetched, and one that is read.
_OWN = (_SHARE, ".fetched-", ".read-")
_PROBE = ".det-check-"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


# Inode, size and modification time in ns: they differ if a file was changed.
_Stamp: TypeAlias = tuple[int, int, int]


class DirectoryDraft:
    """A StorageDraft: a scratch folder, locked until `commit` or `discard`."""

    def __init__(
        self, path: Path, final: Path, lock: OpenFolder, *, is_uploaded: bool = False
    ) -> None:
        self.path = path
        self._final = final
        self._is_uploaded = is_uploaded
        self._lock = lock
        self._synced: dict[Path, _Stamp] = {}

    def sync(self) -> None:
        """Sync the present files to the disk."""
        _sync_tree(self.path, self._synced)

    def commit(self) -> None:
        """Sync the content to the disk, then rename the folder."""
        _sync_tree(self.path, self._synced)
        self.path.rename(self._final)
        _sync(self._final.parent)
        self._lock.close()

    def become_share(self) -> Path:
        """Let `commit` rename the folder to `.share-<uuid>`."""
        if not self._is_uploaded:
            raise CheckpointError(
                f"some ranks do not see the checkpoint folder {self._final.parent}, in which "
                "another rank has begun this checkpoint; checkpoint_storage.host_path has to be "
                "a folder that all computers share"
            )
        self._final = self._final.with_name(f"{_SHARE}{self._final.name}")
        return self._final

    def discard(self) -> None:
        """Remove the folder if it is still a draft."""
        if self._lock.is_open:
            shutil.rmtree(self.path, ignore_errors=True)
            self._lock.close()


class DirectoryStorage:
    """A CheckpointStorage: a folder that computers may share.

    Checkpoints are written and read in place: nothing is copied.

    Args:
        root: The folder; created for the first checkpoint.
        is_own: Whether it is det_jupyter's own folder. If that is missing, there are no
            checkpoints. If another folder is missing, its drive may not be mounted.
    """

    def __init__(self, root: Path, *, is_own: bool = False) -> None:
        self.root = root
        self._is_own = is_own

    @property
    def location(self) -> str:
        """The folder."""
        return str(self.root)

    def check_writable(self) -> None:
        """Create a temporary file in the folder, or in its nearest parent if it does not exist."""
        folder = self.root
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        try:
            with TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise CheckpointError(
                f"checkpoint_storage: {self.root} cannot be written: {error.strerror} ({folder})"
            ) from None

    def begin(self, uuid: str) -> DirectoryDraft:
        """Remove leftovers, and return a draft in the folder."""
        return self._begin(uuid, f"{_SCRATCH}{uuid}")

    def begin_upload(self, uuid: str) -> DirectoryDraft:
        """Return a draft for files that other computers upload; a rank here may have its own."""
        return self._begin(uuid, f"{_SCRATCH}upload-{uuid}")

    def _begin(self, uuid: str, scratch: str) -> DirectoryDraft:
        final = self._path(uuid)
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.remove_leftovers()
        _remove_unlocked(self.root / scratch)  # of the same checkpoint: however old it is
        lock = make_locked(self.root / scratch)
        return DirectoryDraft(self.root / scratch, final, lock, is_uploaded=self._is_own)

    def draft_path(self, uuid: str) -> Path | None:
        """Return the scratch folder of a draft, if it is in this folder."""
        scratch = self.root / f"{_SCRATCH}{uuid}"
        return scratch if scratch.is_dir() else None

    @contextmanager
    def reading(self, uuid: str, takes: Callable[[str], bool] | None = None) -> Iterator[Path]:
        """Yield the checkpoint's own folder, with all of its files."""
        yield existing(self._path(uuid))

    def files(self, uuid: str) -> dict[str, int]:
        """Return the files and their sizes. Links to folders are not followed."""
        folder = self._path(uuid)
        sizes = {}
        try:
            for name in _files_of(folder):
                with suppress(FileNotFoundError):  # the file was deleted meanwhile
                    sizes[name] = (folder / name).lstat().st_size
        except OSError as error:
            raise CheckpointError(
                f"checkpoint {uuid}: {error.filename} cannot be read: {error.strerror}"
            ) from None
        return sizes

    def delete(self, uuid: str, globs: Sequence[str] = ()) -> int:
        """Remove a checkpoint or files of it. Links are never followed."""
        path = self._path(uuid)
        if not self._is_own and not self.root.is_dir():
            raise CheckpointError(f"cannot find the storage folder {self.root}; is it mounted?")
        if os.path.lexists(path) and not _is_checkpoint(path, uuid):
            raise CheckpointError(
                f"left {path} alone: it is not the folder of a checkpoint of this name"
            )
        try:
            left_bytes = _remove_some(path, globs) if globs else 0
            if not left_bytes:
                self._remove(path, uuid)
        except OSError as error:
            raise CheckpointError(f"cannot remove checkpoint {path}: {error.strerror}") from None
        return left_bytes

    def _remove(self, path: Path, uuid: str) -> None:
        doomed = self.root / f"{_DELETED}{uuid}"
        with suppress(FileNotFoundError):  # gone already, or just now
            path.rename(doomed)  # renamed first: no reader finds a part of it
        if doomed.is_dir() and not doomed.is_symlink():
            remove_tree(doomed)

    def _path(self, uuid: str) -> Path:
        if not is_name(uuid):
            raise CheckpointError(f"checkpoint {uuid!r}: this is not the name of a checkpoint")
        return self.root / uuid

    def store(self, uuid: str, folder: Path) -> None:
        """Copy the files into a draft, and commit it."""
        draft = self.begin(uuid)
        try:
            shutil.copytree(folder, draft.path, dirs_exist_ok=True)
            draft.commit()
        except shutil.Error as error:
            raise CheckpointError(
                f"checkpoint {uuid}: not copied: {error.args[0][0][2]}"
            ) from None
        finally:
            draft.discard()

    def scan(self) -> list[CheckpointFiles]:
        """Return the folders with metadata.json, and those that only have the name of one."""
        found = []
        for path in sorted(self.root.iterdir()) if self.root.is_dir() else ():
            if path.is_symlink() or not path.is_dir() or not is_name(path.name):
                continue
            problem = _problem_of(path)
            if not problem or (path / METADATA_FILE).exists() or _UUID.fullmatch(path.name):
                size = _measure(path)
                written = path / METADATA_FILE  # last
                found.append(
                    CheckpointFiles(
                        uuid=path.name,
                        num_bytes=size.num_bytes,
                        stored_at=(written if written.exists() else path).stat().st_mtime,
                        problem=problem,
                    )
                )
        return found

    def remove_leftovers(self) -> None:
        """Remove scratch folders that are not locked; those of other computers: that are old."""
        scratches = [*self.root.glob(f"{_SCRATCH}*")]
        if scratches and not shows_all_locks(self.root):
            before = -math.inf
            with suppress(OSError):  # nothing can be written there
                before = self._now() - _SETTLED_S
            scratches = [each for each in scratches if _is_settled(each, before)]
        for scratch in scratches:
            _remove_unlocked(scratch)

    def sweep(self, age_s: float, remove: Collection[str] = ()) -> list[Leftover]:
        """Return scratch folders that are not locked, and own temporary folders that are old.

        In a folder of the user, and where other computers may have locks that are not seen,
        scratch folders must be old, too.
        """
        kinds = (_SCRATCH, *_OWN) if self._is_own else (_SCRATCH,)
        paths = sorted(self.root.glob(".*"))
        paths = [path for path in paths if path.name.startswith(kinds) and not path.is_symlink()]
        before = self._now() - age_s if paths else 0.0
        is_known = self._is_own and shows_all_locks(self.root)
        found = []
        for path in filter(Path.is_dir, paths):
            is_scratch, keeps = path.name.startswith(_SCRATCH), path.name not in remove
            left = _measure(path)
            is_left = left.changed_at < before or (is_scratch and is_known)
            if is_left and is_scratch:
                is_left = _remove_unlocked(path, dry_run=keeps)
            elif is_left and not keeps:
                remove_tree(path)
            if is_left:
                found.append(left)
        return found

    def _now(self) -> float:
        """Return the time by the clocks of this computer and of the folder's, the earlier one."""
        with TemporaryFile(dir=self.root) as file:
            return min(time.time(), os.fstat(file.fileno()).st_mtime)

    @contextmanager
    def probe(self) -> Iterator[str]:
        """Put an empty file into the folder."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with NamedTemporaryFile(prefix=_PROBE, dir=self.root) as file:
            yield Path(file.name).name

    def has(self, name: str) -> bool:
        """Return whether there is a file of this name."""
        return (self.root / name).is_file()


def _problem_of(path: Path) -> str:
    """Return why a folder is no whole checkpoint; "" if it is one."""
    try:
        metadata: object = read_metadata(path)
    except (OSError, CheckpointError) as error:
        return str(error)
    named = metadata.get("uuid") if isinstance(metadata, dict) else None
    return "" if named == path.name else f"its {METADATA_FILE} is that of {named!r}"


def _is_settled(scratch: Path, before: float) -> bool:
    """Return whether a scratch folder is being deleted, or was not changed since `before`."""
    with suppress(OSError):  # another computer removes it: it is gone, or a handle is stale
        return scratch.name.startswith(_DELETED) or _measure(scratch).changed_at < before
    return False


def _remove_unlocked(scratch: Path, *, dry_run: bool = False) -> bool:
    """Remove a scratch folder if no writer has locked it; return whether none has."""
    lock = None
    with suppress(OSError):  # without locks it may still be in use
        lock = try_lock(scratch)
    if lock is None:
        return False
    if not dry_run:
        shutil.rmtree(scratch, ignore_errors=True)
    lock.close()
    return True


def _measure(path: Path) -> Leftover:
    """Return the size of a folder's files, and when one was last written, or copied there."""
    num_bytes = num_files = 0
    changed_at = path.stat().st_ctime  # copies have the earlier time of modification
    for parent, _, names in os.walk(path):
        for name in names:
            with suppress(FileNotFoundError):  # removed meanwhile
                info = Path(parent, name).lstat()
                changed_at = max(changed_at, info.st_ctime, info.st_mtime)
                num_bytes, num_files = num_bytes + info.st_size, num_files + 1
    return Leftover(
        name=path.name, num_bytes=num_bytes, num_files=num_files, changed_at=changed_at
    )


def existing(folder: Path) -> Path:
    """Return the folder of a checkpoint.

    Raises:
        CheckpointError: The folder does not exist.
    """
    if not folder.is_dir():
        raise CheckpointError(f"checkpoint {folder.name}: not in {folder.parent}")
    return folder


def remove_tree(folder: Path) -> None:
    """Remove a folder while other processes may remove it too: writers remove `.part-*`."""
    while os.path.lexists(folder):
        with suppress(FileNotFoundError):  # another process has removed one of its files: continue
            shutil.rmtree(folder)


def _is_checkpoint(path: Path, uuid: str) -> bool:
    if path.is_symlink() or not path.is_dir():
        return False
    try:
        metadata: object = read_metadata(path)
    except (OSError, CheckpointError):
        return False
    return isinstance(metadata, dict) and metadata.get("uuid") == uuid


def _files_of(folder: Path) -> list[str]:
    found = []
    for inner, _, names in os.walk(folder, onerror=_raise_unless_gone):
        found += [(Path(inner) / name).relative_to(folder).as_posix() for name in names]
    return sorted(found)


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _remove_some(folder: Path, globs: Sequence[str]) -> int:
    """Remove the files that match patterns, and folders that are empty then.

    Return the size of the remaining files in bytes, with metadata.json; 0 if only that is left.
    """
    for name in matching(_files_of(folder), globs):
        (folder / name).unlink(missing_ok=True)
    for inner, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):  # folders with remaining files stay
            os.rmdir(inner)
    left = _files_of(folder)
    return sum((folder / name).lstat().st_size for name in left) if left != [METADATA_FILE] else 0


def _sync_tree(folder: Path, synced: dict[Path, _Stamp]) -> None:
    """Sync the files and folders that are new or changed since the calls before.

    A file with several hard links is a blob, which was synced when it was stored. Only its folder
    is synced, as the code of a trial may be hundreds of files. A named pipe is not opened either,
    as that would wait for its writer.

    Args:
        folder: The folder.
        synced: The stamps of files that were synced; updated.
    """
    for parent, _, files in os.walk(folder):
        paths = [Path(parent, name) for name in files]
        for path in [*paths, Path(parent)]:
            info = path.stat()
            stamp = (info.st_ino, info.st_size, info.st_mtime_ns)
            is_new_file = stat.S_ISREG(info.st_mode) and info.st_nlink == 1
            if (is_new_file or stat.S_ISDIR(info.st_mode)) and synced.get(path) != stamp:
                _sync(path)
                synced[path] = stamp


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
