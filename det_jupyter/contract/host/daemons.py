"""Background programs: a detached start of the master, limits of open files and of logs.

Standard library only: master and agent use it before they import anything heavy, and `%load_ext`
starts a master with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.rundir import without_run

LOG_BYTES = 5_000_000  # size at which a log is rotated
_TRIM_PERIOD_S = 5.0


def raise_file_limit() -> tuple[int, str]:
    """Raise the soft limit of open files to the hard limit; child processes inherit it.

    Returns:
        The limit that is now in effect, and the error if it could not be raised, else "".
    """
    import resource  # Windows has none

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:  # macOS has a hard limit below its "unlimited"
        return soft, str(error)
    return hard, ""


class PrivateLog(RotatingFileHandler):
    """A rotating log whose files have mode 0600.

    Text that UTF-8 cannot encode (from damaged rows, for example) is written with escapes.
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
    """Empty a file that is longer than `most_bytes`; copy its last `most_bytes` to `NAME.1`.

    For the output of a process, which no log handler can rotate: the process keeps the file open,
    so it must have opened it with O_APPEND.
    """
    with suppress(OSError):  # no such file, or the disk is full: the next call tries again
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
    """Trim the files of the log folder that match `patterns` every 5 s, until canceled."""
    import asyncio

    while True:
        for pattern in patterns:
            for path in paths.log_dir().glob(pattern):
                trim_output(path)
        await asyncio.sleep(_TRIM_PERIOD_S)


def spawn_master() -> subprocess.Popen[bytes]:
    """Start a master and return before it is ready. It exits by itself if another one runs."""
    log = paths.master_output()
    with open(os.devnull, "rb") as nothing, open(log, "ab", opener=paths.private_opener) as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "det_jupyter.master", "serve"],
            stdin=nothing,
            stdout=out,
            stderr=out,
            start_new_session=True,  # not in the process group of our terminal or kernel
            cwd=paths.data_dir(),
            env=without_run(os.environ),  # the caller may be the script of an experiment
        )
    # Reaps it if it exits while this process runs: otherwise it would be a zombie.
    threading.Thread(target=process.wait, name="det-master-start", daemon=True).start()
    return process
