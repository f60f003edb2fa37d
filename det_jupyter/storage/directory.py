"""Stores checkpoints in a local or shared folder; each is either complete or absent.

    <root>/<uuid>/             a complete checkpoint
    <root>/.part-<uuid>/       one being written; renamed when every byte of it is on the disk
                               (hard links: only their folder, see `_sync_tree`)
    <root>/.share-<uuid>/      files of a checkpoint of several computers, which an agent uploads

A writer locks its scratch folder; the operating system releases the lock when the writer exits or
is killed. An unlocked scratch folder is therefore a leftover. It is removed by the next writer,
when the master starts, and when an experiment is deleted. The lock belongs to the open file
description, which a process forked meanwhile (a data worker, for example) inherits. The child
closes the description at once; otherwise a child that outlives the writer would keep the lock.

To delete a checkpoint, its folder is first renamed to `.part-deleted-<uuid>`: a folder that cannot
be removed completely is then a leftover.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import ClassVar, TypeAlias

from det_jupyter.errors import CheckpointError
from det_jupyter.storage.contract import METADATA_FILE, is_name, read_metadata
from det_jupyter.storage.globs import matching

_SCRATCH = ".part-"
_SHARE = ".share-"
_ATTEMPTS = 100  # to lock a new folder, which another writer may have locked for a moment
_PAUSE_S = 0.01

_log = logging.getLogger(__name__)


class _OpenFolder:
    """An open folder that can be locked. In a forked process it is closed."""

    _all: ClassVar[set[_OpenFolder]] = set()
    changes = threading.Lock()  # held during a fork, and while a folder is opened or closed

    def __init__(self, path: Path) -> None:
        with self.changes:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            self._all.add(self)

    @property
    def is_open(self) -> bool:
        return self in self._all

    def lock(self) -> None:
        """Acquire the lock.

        Raises:
            BlockingIOError: Another process holds it.
            OSError: The file system has no locks.
        """
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        """Close the folder, which releases the lock. Idempotent."""
        with self.changes:
            if self.is_open:
                self._all.remove(self)
                os.close(self._descriptor)

    @classmethod
    def close_all(cls) -> None:
        """Close all folders. Called in a forked process, in which `changes` is locked."""
        while cls._all:
            os.close(cls._all.pop()._descriptor)
        cls.changes.release()


os.register_at_fork(
    before=_OpenFolder.changes.acquire,
    after_in_parent=_OpenFolder.changes.release,
    after_in_child=_OpenFolder.close_all,
)


# Inode, size and modification time in ns: they differ if a file was changed.
_Stamp: TypeAlias = tuple[int, int, int]


class DirectoryDraft:
    """A StorageDraft: a scratch folder, locked until `commit` or `discard`."""

    def __init__(
        self, path: Path, final: Path, lock: _OpenFolder, *, is_uploaded: bool = False
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
        lock = _make_locked(self.root / scratch)
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
        doomed = self.root / f"{_SCRATCH}deleted-{uuid}"
        with suppress(FileNotFoundError):  # gone already, or just now
            path.rename(doomed)  # renamed first: no reader finds a part of it
        if doomed.is_dir() and not doomed.is_symlink():
            remove_tree(doomed)

    def _path(self, uuid: str) -> Path:
        if not is_name(uuid):
            raise CheckpointError(f"checkpoint {uuid!r}: this is not the name of a checkpoint")
        return self.root / uuid

    def remove_leftovers(self) -> None:
        """Remove scratch folders that are not locked."""
        for scratch in self.root.glob(f"{_SCRATCH}*"):
            lock = None
            with suppress(OSError):  # without locks it may still be in use
                lock = _try_lock(scratch)
            if lock is not None:
                shutil.rmtree(scratch, ignore_errors=True)
                lock.close()


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


def _try_lock(path: Path) -> _OpenFolder | None:
    """Return the folder, locked; None if it is gone or another process has locked it.

    Raises:
        OSError: The file system cannot lock folders, as some network file systems.
    """
    try:
        folder = _OpenFolder(path)
    except FileNotFoundError:
        return None
    try:
        folder.lock()
    except BaseException as error:  # an interrupt too: the folder is closed
        folder.close()
        if isinstance(error, BlockingIOError):
            return None
        raise
    return folder


def _make_locked(folder: Path) -> _OpenFolder:
    """Create the folder and return it, locked if the file system has locks."""
    for _ in range(_ATTEMPTS):
        with suppress(FileExistsError):  # `exist_ok` also raises while another process removes it
            folder.mkdir(mode=0o700)
        try:
            lock = _try_lock(folder)
        except OSError as error:
            # No other writer can lock it either, so none removes it as a leftover.
            _log.warning("%s: cannot be locked (%s); writing without a lock", folder, error)
            return _OpenFolder(folder)
        # Before it was locked, another writer may have removed it as a leftover.
        if lock is not None and folder.is_dir():
            return lock
        if lock is not None:
            lock.close()
        time.sleep(_PAUSE_S)
    raise CheckpointError(f"{folder}: another process holds its lock; it is writing the same one")


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
