"""The short folder for IPC sockets: their paths are limited to about 100 bytes.

A file in the runtime folder says where it is, so that a successor of an agent that was killed can
remove it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from det_jupyter import paths

_PREFIX = "det-"


@contextmanager
def socket_folder() -> Iterator[Path]:
    """Give a new 0700 folder; remove it at the end, and that of a dead predecessor at once."""
    note = paths.runtime_dir() / "agent.sockets"
    _remove_noted(note)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    paths.write_private(note, str(folder))
    try:
        yield folder
    finally:
        _remove_noted(note)


def _remove_noted(note: Path) -> None:
    try:
        folder = Path(paths.read_private(note))
    except FileNotFoundError:
        return
    if folder.name.startswith(_PREFIX):
        shutil.rmtree(folder, ignore_errors=True)
    note.unlink(missing_ok=True)
