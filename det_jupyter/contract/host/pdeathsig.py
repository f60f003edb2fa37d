"""Ends a process when its parent dies (Linux)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)  # loaded before any fork


def die_with(parent_pid: int) -> None:
    """Have this process killed when its parent dies. Call it first in a new child.

    For Linux the parent is the thread that forked, so that has to be the main thread. Does nothing
    on other systems, where ranks watch the lifeline.

    Raises:
        OSError: The system refuses.
    """
    if sys.platform != "linux":
        return
    if _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent_pid:  # it died before prctl
        os._exit(1)
