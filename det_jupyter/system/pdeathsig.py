"""Ends a process together with its parent, where the system can do that (Linux)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)  # before any fork: a child should not have to load it


def die_with(parent_pid: int) -> None:
    """Make this process, a child that was just made, die at once with its parent.

    Linux takes the thread that forked for the parent, so that has to be the main thread. On other
    systems nothing happens here; ranks notice the closed lifeline instead.

    Raises:
        OSError: The system refuses.
    """
    if sys.platform != "linux":
        return
    if _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent_pid:  # it died before the kernel was told
        os._exit(1)
