"""Starts a zygote. Light to import: the agent does it before it imports anything heavy.

Loading torch is the longest part of a cold start, so everything else happens beside it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from det_jupyter.errors import LaunchError
from det_jupyter.system import paths
from det_jupyter.system.pdeathsig import die_with

RANK_TARGET = "det_jupyter.worker.rank:run_rank"
_NO_INTERPRETER = (errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.ENOEXEC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZygoteProcess:
    """A zygote that was started; nothing was said yet."""

    python: str
    process: subprocess.Popen[bytes]
    connection: socket.socket
    log: Path


def start_zygote(python: str, *, lifeline_fd: int, target: str) -> ZygoteProcess:
    """Start a zygote and return at once, long before it is ready.

    Args:
        python: The interpreter.
        lifeline_fd: Read end of a pipe whose only write end is ours; goes on to the ranks.
        target: What runs in a forked rank, as `module:function`.

    Raises:
        LaunchError: There is no such interpreter.
        OSError: It could not be started this time.
    """
    log = paths.log_dir() / f"zygote-{hashlib.sha256(python.encode()).hexdigest()[:8]}.out"
    # -P: the folder it is started in must not shadow modules
    argv = [python, "-P", "-m", "det_jupyter.worker.zygote"]
    with open(log, "ab", opener=paths.private_opener) as out:  # programs.py may trim it
        out.truncate(0)
        ours, theirs = socket.socketpair()
        try:
            process = subprocess.Popen(
                [*argv, "--socket", str(theirs.fileno()), "--target", target],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                pass_fds=(theirs.fileno(), lifeline_fd),
                process_group=0,  # a Ctrl-C for us is not for it
                preexec_fn=child_setup(),
                cwd=paths.data_dir(),
            )
        except BaseException as error:
            ours.close()
            if not isinstance(error, OSError) or error.errno not in _NO_INTERPRETER:
                raise
            raise LaunchError(
                f"the interpreter {python} cannot be started: {error.strerror}; choose the "
                "notebook's kernel again, or make its environment anew"
            ) from None
        finally:
            theirs.close()
    return ZygoteProcess(python=python, process=process, connection=ours, log=log)


def child_setup() -> Callable[[], None] | None:
    """Return what Popen is to run in a child so that it cannot outlive us; None: not possible."""
    return partial(die_with, os.getpid()) if sys.platform == "linux" else None
