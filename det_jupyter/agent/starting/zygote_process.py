"""Starts the process of a fork server (zygote). This module imports little.

Importing torch takes longest in a cold start, so the agent starts the fork server before it
imports the rest.
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

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.pdeathsig import kill_with_parent
from det_jupyter.errors import LaunchError

RANK_TARGET = "det_jupyter.rank.rank:run_rank"
_NO_INTERPRETER = (errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.ENOEXEC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZygoteProcess:
    """The process of a fork server, just started, and the socket to it."""

    python: str
    process: subprocess.Popen[bytes]
    connection: socket.socket
    log: Path


def start_zygote(python: str, *, lifeline_fd: int, target: str) -> ZygoteProcess:
    """Start a fork server and return at once, long before it is ready.

    Args:
        lifeline_fd: Read end of a pipe whose only write end is in this process; ranks inherit it.
        target: Function that a forked rank runs, as `module:function`.

    Raises:
        LaunchError: There is no such interpreter.
        OSError: It could not be started; another attempt may succeed.
    """
    log = paths.log_dir() / f"zygote-{hashlib.sha256(python.encode()).hexdigest()[:8]}.out"
    # -P: files in the working folder must not shadow modules
    argv = [python, "-P", "-m", "det_jupyter.rank.zygote"]
    with open(log, "ab", opener=paths.private_opener) as out:  # keep_trimmed may shorten it
        out.truncate(0)
        ours, theirs = socket.socketpair()
        try:
            process = subprocess.Popen(
                [*argv, "--socket", str(theirs.fileno()), "--target", target],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                pass_fds=(theirs.fileno(), lifeline_fd),
                process_group=0,  # a Ctrl-C in this process's terminal must not end it
                preexec_fn=child_setup(),
                cwd=paths.data_dir(),
            )
        except BaseException as error:  # an interrupt too: the socket is closed
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
    """Return the `preexec_fn` with which a child is killed when this process exits.

    None where the system cannot do that.
    """
    return partial(kill_with_parent, os.getpid()) if sys.platform == "linux" else None
