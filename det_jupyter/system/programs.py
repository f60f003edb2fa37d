"""What our background programs have in common: how many files they open, how long their logs get.

Standard library only: the master and the agent use it before anything heavy is imported.
"""

from __future__ import annotations

import os
import resource
import shutil
from contextlib import suppress
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from det_jupyter.system import paths

LOG_BYTES = 5_000_000  # of a log; as much again, or twice that, is kept of what came before
_LOOK_S = 5.0


def raise_file_limit() -> tuple[int, str]:
    """Let us, and all that we start, open as many files as we may.

    Returns:
        How many that is, and what the system says if it does not let us have them all.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:  # macOS says "unlimited" and does not mean it
        return soft, str(error)
    return hard, ""


class PrivateLog(RotatingFileHandler):
    """A log whose every file, the one after each rotation too, is the user's alone.

    It takes any text: what UTF-8 cannot carry (damaged rows are quoted) is written as an escape.
    """

    def _open(self) -> TextIOWrapper:
        return open(
            self.baseFilename,
            "a",
            encoding="utf-8",
            errors="backslashreplace",
            opener=paths.private_opener,
        )


def trim_output(path: Path, *, most_bytes: int = LOG_BYTES) -> None:
    """Empty a file that processes append to, if it has grown too long; keep a copy as `.1`.

    For what a process and its libraries print, which no handler can rotate: the file stays open
    there, and is written to from its new end on (it has to be open with O_APPEND).
    """
    with suppress(OSError):  # it is not there, or the disk is full: it is tried again
        if path.stat().st_size > most_bytes:
            copy = path.with_name(path.name + ".1")
            with (
                open(path, "rb") as source,
                open(copy, "wb", opener=paths.private_opener) as target,
            ):
                source.seek(-most_bytes, os.SEEK_END)
                shutil.copyfileobj(source, target)
            os.truncate(path, 0)


async def keep_trimmed(*patterns: str) -> None:
    """Trim these files of the log folder for ever."""
    import asyncio

    while True:
        for pattern in patterns:
            for path in paths.log_dir().glob(pattern):
                trim_output(path)
        await asyncio.sleep(_LOOK_S)
