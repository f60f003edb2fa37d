"""Files that a user or another program names: opened only if they are regular files.

A pipe without a writer would block, and a device such as /dev/zero has no end.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from io import BufferedReader
from pathlib import Path


def open_regular(path: str | Path, opener: Callable[[str, int], int] = os.open) -> BufferedReader:
    """Open a regular file, or a link to one, for reading.

    Args:
        path: The file.
        opener: Opens the file, as the `opener` of `open`; it may refuse further files.

    Raises:
        OSError: It cannot be opened, or is no regular file.
    """

    def without_blocking(path: str, flags: int) -> int:  # for a writer, if it is a pipe
        return opener(path, flags | os.O_NONBLOCK)

    file = open(path, "rb", opener=without_blocking)  # noqa: SIM115  # the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return file


def read_regular(path: str | Path) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: As for `open_regular`; or it cannot be read.
    """
    with open_regular(path) as file:
        return file.read()
