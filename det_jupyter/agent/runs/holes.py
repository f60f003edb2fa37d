"""Holes in files: space that is given back while somebody still writes at the end. Linux only."""

from __future__ import annotations

import ctypes
import errno
import os
from functools import cache
from pathlib import Path
from typing import Any

_PUNCH_HOLE_KEEPING_SIZE = 0x02 | 0x01


@cache
def _fallocate() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    function = getattr(library, "fallocate", None)  # Python has only the one that allocates
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong]
    return function


def make_hole(path: Path, size_bytes: int) -> None:
    """Give back the space of the file's first bytes, which read as zeros from now on.

    Raises:
        OSError: The system, or the file system, cannot.
    """
    fallocate = _fallocate()
    if fallocate is None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), str(path))
    descriptor = os.open(path, os.O_WRONLY)
    try:
        if fallocate(descriptor, _PUNCH_HOLE_KEEPING_SIZE, 0, size_bytes):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(descriptor)
