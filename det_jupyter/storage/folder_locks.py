"""Locks of folders: the operating system releases one when its process exits or is killed.

The lock belongs to the open file description, which a process forked meanwhile (a data worker, for
example) inherits. The child closes the description at once; otherwise a child that outlives the
writer would keep the lock.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from det_jupyter.errors import CheckpointError

_ATTEMPTS = 100  # to lock a new folder, which another writer may have locked for a moment
_PAUSE_S = 0.01
# File systems of one computer. With others, such as NFS, several computers may have a folder, and
# not see each other's locks.
_OF_ONE_COMPUTER = (
    "apfs", "bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "hfs", "jfs", "overlay", "tmpfs",
    "ufs", "xfs", "zfs",
)  # fmt: skip

_log = logging.getLogger(__name__)


class OpenFolder:
    """An open folder that can be locked. In a forked process it is closed."""

    _all: ClassVar[set[OpenFolder]] = set()
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
    before=OpenFolder.changes.acquire,
    after_in_parent=OpenFolder.changes.release,
    after_in_child=OpenFolder.close_all,
)


def try_lock(path: Path) -> OpenFolder | None:
    """Return the folder, locked; None if it is gone or another process has locked it.

    Raises:
        OSError: The file system cannot lock folders, as some network file systems.
    """
    try:
        folder = OpenFolder(path)
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


def make_locked(folder: Path) -> OpenFolder:
    """Create the folder and return it, locked if the file system has locks."""
    for _ in range(_ATTEMPTS):
        with suppress(FileExistsError):  # `exist_ok` also raises while another process removes it
            folder.mkdir(mode=0o700)
        try:
            lock = try_lock(folder)
        except OSError as error:
            # No other writer can lock it either, so none removes it as a leftover.
            _log.warning("%s: cannot be locked (%s); writing without a lock", folder, error)
            return OpenFolder(folder)
        # Before it was locked, another writer may have removed it as a leftover.
        if lock is not None and folder.is_dir():
            return lock
        if lock is not None:
            lock.close()
        time.sleep(_PAUSE_S)
    raise CheckpointError(f"{folder}: another process holds its lock; it is writing the same one")


def shows_all_locks(folder: Path) -> bool:
    """Return whether locks of all writers are seen here: no other computer has the folder."""
    import psutil  # not at the top: it is slow to import

    real = Path(os.path.realpath(folder))
    mounts = [
        mount
        for mount in psutil.disk_partitions(all=True)
        if real.is_relative_to(mount.mountpoint)
    ]
    # A later mount covers an earlier one at the same place.
    innermost = max(reversed(mounts), key=lambda mount: len(mount.mountpoint), default=None)
    return innermost is not None and innermost.fstype in _OF_ONE_COMPUTER
