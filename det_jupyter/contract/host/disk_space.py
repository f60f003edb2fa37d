"""Detects full disks (ENOSPC) and used up quotas (EDQUOT), in folders and in errors.

Standard library only, as ranks and launchers use it.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryFile

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_SQLITE_FULL = 13  # SQLITE_FULL, which sqlite3 names since Python 3.11
_ROOM_BYTES = 256 * 1024  # an empty database with its journal, and some log lines


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
