"""Checkpoints in a folder, each complete or not there at all. Knows nothing of what is in them.

    <root>/<uuid>/             a complete checkpoint
    <root>/.part-<uuid>/       one being written; renamed when every byte of it is on the disk
                               (of hard links only their folder: see `_sync_tree`)

A writer holds a lock on its scratch folder, which the kernel drops when the writer dies. So a
leftover can be told from work in progress, and is removed: by the next writer, when the master
starts, and when an experiment is deleted. The lock belongs to the open folder, which a process
forked meanwhile, a data worker say, has open as well; it closes it at once, or it could outlive
the writer and keep the lock.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import ClassVar, TypeAlias

from det_jupyter.errors import CheckpointError

_SCRATCH = ".part-"
_ATTEMPTS = 100  # to lock a folder of our own, which another writer can only hold for a moment
_PAUSE_S = 0.01

_log = logging.getLogger(__name__)


class _OpenFolder:
    """An open folder, whose lock one can hold; a forked process finds it closed."""

    _all: ClassVar[set[_OpenFolder]] = set()
    changes = threading.Lock()  # no fork while one is open, but not among all

    def __init__(self, path: Path) -> None:
        with self.changes:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            self._all.add(self)

    @property
    def is_open(self) -> bool:
        return self in self._all

    def lock(self) -> None:
        """Take the lock, or raise an OSError: BlockingIOError if another process holds it."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        """Drop the lock, too."""
        with self.changes:
            if self.is_open:
                self._all.remove(self)
                os.close(self._descriptor)

    @classmethod
    def close_all(cls) -> None:
        """Called in a forked process, which has got `changes` locked."""
        while cls._all:
            os.close(cls._all.pop()._descriptor)
        cls.changes.release()


os.register_at_fork(
    before=_OpenFolder.changes.acquire,
    after_in_parent=_OpenFolder.changes.release,
    after_in_child=_OpenFolder.close_all,
)


# Inode, size and time of the last change in ns: a file that is changed has another one.
_Stamp: TypeAlias = tuple[int, int, int]


class LocalDraft:
    """A checkpoint in the making. Used by one thread at a time, not always the same one.

    Its folder, `path`, is empty at first, and locked until it ends one way or the other.
    """

    def __init__(self, path: Path, final: Path, lock: _OpenFolder) -> None:
        self.path = path
        self._final = final
        self._lock = lock
        self._synced: dict[Path, _Stamp] = {}

    def sync(self) -> None:
        """Have what is there by now on the disk, so that `commit` has less to wait for."""
        _sync_tree(self.path, self._synced)

    def commit(self) -> None:
        """Make the folder's content the checkpoint, whole, once it is on the disk."""
        _sync_tree(self.path, self._synced)
        self.path.rename(self._final)
        _sync(self._final.parent)
        self._lock.close()

    def discard(self) -> None:
        """Remove it. There never was a checkpoint of that name; may be called twice."""
        if self._lock.is_open:
            shutil.rmtree(self.path, ignore_errors=True)
            self._lock.close()


class LocalStorage:
    """Keeps checkpoints by uuid, in a local or shared folder.

    Used by one thread at a time; several processes may share one storage. A checkpoint that can be
    found is complete.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def check_writable(self) -> None:
        """Make sure that checkpoints can be written, before hours are spent. Leaves nothing there.

        Raises:
            CheckpointError: They cannot, and why.
        """
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

    def begin(self, uuid: str) -> LocalDraft:
        """Return a draft of a checkpoint. If the process dies with it, it never existed."""
        final = self._path(uuid)
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.remove_leftovers()
        scratch = self.root / f"{_SCRATCH}{uuid}"
        return LocalDraft(scratch, final, _make_locked(scratch))

    def find(self, uuid: str) -> Path:
        """Return the checkpoint's folder, for reading only.

        Raises:
            CheckpointError: There is none.
        """
        path = self._path(uuid)
        if not path.is_dir():
            raise CheckpointError(f"checkpoint {uuid}: not in {self.root}")
        return path

    def delete(self, uuid: str) -> None:
        """Remove the checkpoint; it may be gone already."""
        path = self._path(uuid)
        if path.is_dir():
            # Renamed first, so that a reader never finds half of it.
            doomed = self.root / f"{_SCRATCH}deleted-{uuid}"
            path.rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)  # a writer may be removing it as well

    def _path(self, uuid: str) -> Path:
        if not uuid or uuid.startswith(".") or "/" in uuid:
            raise CheckpointError(f"checkpoint {uuid!r}: this is not the name of a checkpoint")
        return self.root / uuid

    def remove_leftovers(self) -> None:
        """Remove what writers that were killed have left; what is being written stays."""
        for scratch in self.root.glob(f"{_SCRATCH}*"):
            lock = None
            with suppress(OSError):  # it cannot be told whether someone is still writing there
                lock = _try_lock(scratch)
            if lock is not None:
                shutil.rmtree(scratch, ignore_errors=True)
                lock.close()


def default_root(host_path: str | None, data_dir: Path) -> Path:
    """Return the folder that `checkpoint_storage.host_path` means; by default, our own."""
    return Path(host_path).expanduser() if host_path else data_dir / "checkpoints"


def _try_lock(path: Path) -> _OpenFolder | None:
    """Return the folder with its lock held; None if it is gone or taken.

    An OSError: this file system locks no folders, as some network file systems do not.
    """
    try:
        folder = _OpenFolder(path)
    except FileNotFoundError:
        return None
    try:
        folder.lock()
    except BaseException as error:
        folder.close()
        if isinstance(error, BlockingIOError):
            return None
        raise
    return folder


def _make_locked(folder: Path) -> _OpenFolder:
    """Make the folder and return it with its lock held, where there are locks."""
    for _ in range(_ATTEMPTS):
        with suppress(FileExistsError):  # `exist_ok` raises too, where another just removes it
            folder.mkdir(mode=0o700)
        try:
            lock = _try_lock(folder)
        except OSError as error:
            # No other writer can lock it either, so none takes it for a leftover.
            _log.warning("%s: cannot be locked (%s); writing without a lock", folder, error)
            return _OpenFolder(folder)
        # Another writer may have taken it for a leftover before it was locked, and removed it.
        if lock is not None and folder.is_dir():
            return lock
        if lock is not None:
            lock.close()
        time.sleep(_PAUSE_S)
    raise CheckpointError(f"{folder}: another process holds its lock; it is writing the same one")


def _sync_tree(folder: Path, synced: dict[Path, _Stamp]) -> None:
    """Sync what is new or has changed since the calls before, which `synced` holds.

    A file with several names is a link to a blob, whose bytes were synced when it was stored. So
    only its folder is synced: the code of a trial may be hundreds of files.
    """
    for parent, _, files in os.walk(folder):
        paths = [Path(parent, name) for name in files]
        for path in [*paths, Path(parent)]:
            info = path.stat()
            stamp = (info.st_ino, info.st_size, info.st_mtime_ns)
            is_link = info.st_nlink > 1 and stat.S_ISREG(info.st_mode)
            if not is_link and synced.get(path) != stamp:
                _sync(path)
                synced[path] = stamp


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
