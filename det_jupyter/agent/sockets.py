"""The folder of IPC sockets. Its path is short, because theirs are limited to about 100 bytes.

It is in the folder of temporary files, unless its path is too long (TMPDIR may name any folder),
or every user can replace entries there (some containers have a /tmp of mode 0777). A file in the
runtime folder has its path, so that the next agent can remove it if this one is killed.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.ownership import find_problem_above

logger = logging.getLogger(__name__)

_PREFIX = "det-"
_MOST_BYTES = 100 - len("/det-12345678/12345/pymp-999/listener-12345678")  # of 103 to 107


@contextmanager
def socket_folder() -> Iterator[Path]:
    """Make a new 0700 folder, remove it at the end, and first that of an agent that was killed."""
    note = paths.runtime_dir() / "agent.sockets"
    _remove_noted(note)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_place()))
    paths.write_private(note, str(folder))
    try:
        yield folder
    finally:
        _remove_noted(note)


def _place() -> str:
    for place in (tempfile.gettempdir(), "/tmp", "/dev/shm"):
        is_usable = _is_short(place) and os.access(place, os.W_OK | os.X_OK)
        if is_usable and not find_problem_above(Path(place, "det")):
            return place
    place = str(paths.runtime_dir())
    if not _is_short(place):
        logger.error(
            "sockets in %s have paths that are too long, so ranks have no kernels; set TMPDIR to "
            "a folder whose path has at most %d bytes, and start the agent again",
            place,
            _MOST_BYTES,
        )
    return place


def _is_short(place: str) -> bool:
    return len(os.fsencode(place)) <= _MOST_BYTES


def _remove_noted(note: Path) -> None:
    try:
        folder = Path(paths.read_private(note))
    except FileNotFoundError:
        return
    if folder.name.startswith(_PREFIX):
        shutil.rmtree(folder, ignore_errors=True)
    note.unlink(missing_ok=True)
