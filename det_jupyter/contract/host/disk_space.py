"""Measures the room on disks; recognises full disks (ENOSPC) and used up quotas (EDQUOT).

    free      0 ........... floor ............ 1.5 floor .................
    writers     wait          go on writing      those that wait go on
    master      has also its reserve, half a floor (master/service/committing/reserve.py)

Ranks stop writing while less than a floor is free, so that the master can store what they have
written, and what users request. Because of the distance to 1.5 floor they do not alternate between
waiting and writing.
A quota that the file system does not show is only noticed by the error of a write.

Standard library only, as ranks and launchers use it.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_SQLITE_FULL = 13  # SQLITE_FULL, which sqlite3 names since Python 3.11
_ROOM_BYTES = 256 * 1024  # an empty database with its journal, and some log lines
_FLOOR_BYTES = 64 * 1024 * 1024
_FLOOR_SHARE = 16  # the floor of a small disk is this part of it
_FLOOR_FILES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The room on the disk of a folder.

    Args:
        total_bytes: The size of the disk; 0: its file system does not report it, nor what is free.
        free_bytes: What this user can still write.
        free_files: How many files this user can still make; None: the file system has no limit.
        disk: Identifies the disk on this computer.
    """

    total_bytes: int
    free_bytes: int
    free_files: int | None = None
    disk: int = 0

    @property
    def floor_bytes(self) -> int:
        """Ranks stop writing while less than this is free."""
        return min(_FLOOR_BYTES, self.total_bytes // _FLOOR_SHARE)

    @property
    def has_files(self) -> bool:
        """Whether enough files can still be made."""
        return self.free_files is None or self.free_files >= _FLOOR_FILES

    def is_short(self, needs_bytes: int = 0) -> bool:
        """Return whether a writer of `needs_bytes` has to wait."""
        return not (self.has_files and self._has(self.floor_bytes + needs_bytes))

    def is_enough(self, needs_bytes: int = 0) -> bool:
        """Return whether a writer that waits can go on."""
        return self.has_files and self._has(self.floor_bytes * 3 // 2 + needs_bytes)

    def _has(self, num_bytes: int) -> bool:
        return self.total_bytes == 0 or self.free_bytes >= num_bytes


def room_of(folder: str | os.PathLike[str]) -> Room | None:
    """Return the room on the disk of a folder, which may not exist yet; None if unknown."""
    path = Path(folder)
    while True:
        try:
            found = os.statvfs(path)
            disk = os.stat(path).st_dev
            break
        except FileNotFoundError:
            if path == path.parent:
                return None
            path = path.parent
        except (OSError, ValueError):  # a drive that does not answer, for example
            return None
    # A read-only disk has no free space, but writes fail for another reason.
    if found.f_flag & os.ST_RDONLY:
        return None
    return Room(
        total_bytes=found.f_frsize * found.f_blocks,
        free_bytes=found.f_frsize * found.f_bavail,
        free_files=found.f_favail if found.f_files else None,
        disk=disk,
    )


def is_enough_room(folder: str | os.PathLike[str], needs_bytes: int = 0) -> bool:
    """Return whether writers that wait for room in a folder can go on.

    For a folder that does not exist yet, the disk of the folder above it counts. An unknown disk
    has no room.
    """
    room = room_of(folder)
    return room is not None and room.is_enough(needs_bytes) and not why_no_room(folder)


def why_no_room(folder: str | os.PathLike[str]) -> str:
    """Try to write 256 KiB into a folder; return the error if its disk is full, else "".

    Other errors also return "".
    """
    try:
        with TemporaryFile(dir=folder) as file:
            file.write(bytes(_ROOM_BYTES))
            file.flush()
    except OSError as error:
        return str(error.strerror) if _is_full_disk(error) else ""
    return ""


def is_no_room(error: BaseException) -> bool:
    """Return whether an error, or one that caused it, is of a full disk."""
    return any(_is_full_disk(each) for each in _chain(error))


def folder_without_room(
    error: BaseException, others: Iterable[str | os.PathLike[str]] = ()
) -> str:
    """Return the folder that a full disk error names, else the first of `others` that is full.

    An error of a write to an open file names no folder. Returns "" if no folder is found.
    """
    for each in _chain(error):
        if isinstance(each, OSError) and each.errno in _NO_ROOM and each.filename:
            path = Path(os.fsdecode(each.filename))
            return str(path if path.is_dir() else path.parent)
    return next((os.fspath(other) for other in others if why_no_room(other)), "")


def _is_full_disk(error: BaseException) -> bool:
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF == _SQLITE_FULL
    return isinstance(error, OSError) and error.errno in _NO_ROOM


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes and contexts."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__
