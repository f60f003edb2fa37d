"""The short folder for IPC sockets: their paths are limited to about 100 bytes.

It is where temporary files are, unless every user could replace it there: some containers have a
/tmp of mode 0777.

A file in the runtime folder says where it is, so that a successor of an agent that was killed can
remove it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from det_jupyter.system import paths
from det_jupyter.system.ownership import find_problem_above

_PREFIX = "det-"


@contextmanager
def socket_folder() -> Iterator[Path]:
    """Give a new 0700 folder; remove it at the end, and that of a dead predecessor at once."""
    note = paths.runtime_dir() / "agent.sockets"
    _remove_noted(note)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_place()))
    paths.write_private(note, str(folder))
    try:
        yield folder
    finally:
        _remove_noted(note)


def _place() -> str:
    for place in (tempfile.gettempdir(), "/dev/shm"):
        if os.access(place, os.W_OK | os.X_OK) and not find_problem_above(Path(place, "det")):
            return place
    return str(paths.runtime_dir())


def _remove_noted(note: Path) -> None:
    try:
        folder = Path(paths.read_private(note))
    except FileNotFoundError:
        return
    if folder.name.startswith(_PREFIX):
        shutil.rmtree(folder, ignore_errors=True)
    note.unlink(missing_ok=True)
