"""Writes a file for others: whole, or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkstemp
from typing import BinaryIO

from det_jupyter.errors import DetError


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a new 0600 file that replaces `path` if the block ends without an error.

    Raises:
        DetError: It cannot be written, or `path` is a folder or a device; no file is left.
    """
    if path.exists() and not path.is_file():  # /dev/null would be replaced
        what = "a folder" if path.is_dir() else "no regular file"
        raise DetError(f"{path}: it is {what}; give the name of a file")
    try:
        descriptor, scratch = mkstemp(dir=path.parent, prefix=".det-", suffix=".part")
        try:
            with open(descriptor, "wb") as stream:
                yield stream
            os.replace(scratch, path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(scratch)
    except OSError as error:
        raise DetError(f"{path}: cannot be written: {error.strerror or error}") from None
