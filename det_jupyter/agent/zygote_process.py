"""Starts a zygote. Light to import: the agent does it before it imports anything heavy.

Loading torch is the longest part of a cold start, so everything else happens beside it.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from det_jupyter import paths
from det_jupyter.errors import LaunchError

RANK_TARGET = "det_jupyter.worker.rank:run_rank"
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)  # before any fork: a child should not have to load it


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
    """
    ours, theirs = socket.socketpair()
    log = paths.log_dir() / f"zygote-{hashlib.sha256(python.encode()).hexdigest()[:8]}.out"
    # -P: the folder it is started in must not shadow modules
    argv = [python, "-P", "-m", "det_jupyter.worker.zygote"]
    argv += ["--socket", str(theirs.fileno()), "--target", target]
    with theirs, log.open("wb") as out:
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                pass_fds=(theirs.fileno(), lifeline_fd),
                process_group=0,  # a Ctrl-C for us is not for it
                preexec_fn=child_setup(),
                cwd=paths.data_dir(),
            )
        except OSError as error:
            ours.close()
            raise LaunchError(
                f"the interpreter {python} cannot be started: {error.strerror}; choose the "
                "notebook's kernel again, or make its environment anew"
            ) from None
    return ZygoteProcess(python=python, process=process, connection=ours, log=log)


def child_setup() -> Callable[[], None] | None:
    """Return what Popen is to run in a child so that it cannot outlive us; None: not possible.

    To be started from the main thread: Linux takes the thread that forked for the parent.
    """
    if sys.platform != "linux":
        return None
    agent_pid = os.getpid()

    def die_with_agent() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != agent_pid:  # it died before the kernel was told
            os._exit(1)

    return die_with_agent
