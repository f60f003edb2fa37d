"""Copies what this process prints into a file.

Python's streams are copied, and no file descriptor is replaced: a notebook shows its output as
before, and a terminal stays one. What C code prints is not copied.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from det_jupyter.contract.host.paths import private_opener


class PrintedCopy:
    """Copies what is written to `sys.stdout` and `sys.stderr` from now on, until `close`."""

    def __init__(self, path: Path) -> None:
        self._file: Any = open(  # noqa: SIM115 - closed by `close`
            path, "a", encoding="utf-8", errors="backslashreplace", opener=private_opener
        )
        self._copied: list[tuple[Any, Any, Any]] = []  # with the `write` that was set before
        for stream in {id(each): each for each in (sys.stdout, sys.stderr)}.values():
            with suppress(AttributeError, TypeError):  # closed (None), or of an unusual kind
                self._copy(stream)

    def _copy(self, stream: Any) -> None:
        write, before = stream.write, stream.__dict__.get("write")

        def copied(text: str) -> Any:
            result = write(text)
            with suppress(OSError, ValueError):  # the disk is full, or it is closed
                self._file.write(text)
                self._file.flush()  # a fork must not have a part of it
            return result

        stream.write = copied
        self._copied.append((stream, copied, before))

    def close(self) -> None:
        """Stop copying."""
        for stream, copied, before in self._copied:
            if stream.__dict__.get("write") is not copied:
                continue  # something has wrapped it since
            if before is not None:
                stream.write = before
            else:
                del stream.write
        with suppress(OSError):  # the disk is full
            self._file.close()
