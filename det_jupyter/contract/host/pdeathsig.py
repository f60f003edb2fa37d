"""PR_SET_PDEATHSIG: the kernel kills a process when its parent exits (Linux only)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)  # loaded before any fork


def kill_with_parent(parent_pid: int) -> None:
    """Let the kernel kill this process when its parent exits. Call it first in a new child.

    Linux watches the thread that forked, so the parent must have forked in its main thread. Does
    nothing on other systems, where ranks watch the lifeline.

    Raises:
        OSError: prctl has failed.
    """
    if sys.platform != "linux":
        return
    if _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent_pid:  # the parent exited before prctl
        os._exit(1)
