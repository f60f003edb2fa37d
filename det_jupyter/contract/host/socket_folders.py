"""Folders of unix sockets: private, and with short paths.

The paths of sockets are limited to about 100 bytes. So the folder is in the folder of temporary
files, unless that path is too long (TMPDIR may name any folder) or every user can replace entries
there (some containers have a /tmp of mode 0777). A note in the runtime folder contains its path:
the next process finds the folder by it, also if this one is killed. What removes old temporary
files, such as the end of a job, may remove the folder too: see `keep_socket_folder`.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.ownership import find_problem_above

logger = logging.getLogger(__name__)

_PREFIX = "det-"
# Systems allow 103 to 107 bytes for the path of a unix socket.
_MOST_BYTES = 100 - len("/det-12345678/12345/pymp-999/listener-12345678")


@contextmanager
def socket_folder(note: Path) -> Iterator[Path]:
    """Make a 0700 folder for sockets, and remove it at the end; first remove the former one.

    Args:
        note: File with the folder's path.
    """
    remove_socket_folder(note)
    folder = _make_folder(note)
    try:
        yield folder
    finally:
        remove_socket_folder(note)


def keep_socket_folder(note: Path) -> Path:
    """Return the folder that the note names, with its content; make one if it is not there."""
    folder = _noted(note)
    if folder is not None and is_own_folder(folder):
        with suppress(OSError):
            folder.chmod(0o700)
            return folder
    return _make_folder(note)


def is_own_folder(folder: Path) -> bool:
    """Return whether a folder is there, and is this user's."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def remove_socket_folder(note: Path) -> None:
    """Remove the folder that the note names, and the note."""
    if (folder := _noted(note)) is not None:
        shutil.rmtree(folder, ignore_errors=True)
    note.unlink(missing_ok=True)


def _noted(note: Path) -> Path | None:
    try:
        folder = Path(paths.read_private(note))
    except FileNotFoundError:
        return None
    return folder if folder.name.startswith(_PREFIX) else None


def _make_folder(note: Path) -> Path:
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_parent()))
    paths.write_private(note, str(folder))
    return folder


def _parent() -> str:
    for place in (tempfile.gettempdir(), "/tmp", "/dev/shm"):
        is_usable = _is_short(place) and os.access(place, os.W_OK | os.X_OK)
        if is_usable and not find_problem_above(Path(place, "det")):
            return place
    place = str(paths.runtime_dir())
    if not _is_short(place):
        logger.error(
            "sockets in %s have paths that are too long, so consoles cannot reach ranks; set "
            "TMPDIR to a folder whose path has at most %d bytes, and start master and agent again",
            place,
            _MOST_BYTES,
        )
    return place


def _is_short(place: str) -> bool:
    return len(os.fsencode(place)) <= _MOST_BYTES
