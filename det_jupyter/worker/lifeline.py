"""A thread that ends the rank when its agent is gone, however busy the main thread is.

The agent holds the write end of a pipe whose read end all ranks inherit: it closes when the agent
dies, whatever it dies of. The kernel tells a process's death only to its children, and on Linux
only.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable
from typing import NoReturn


def watch(lifeline_fd: int | None, *, after_s: float, then: Callable[[], None]) -> None:
    """Watch over this process from now on, and call `then` once, `after_s` from now."""
    threading.Thread(
        target=_watch, args=(lifeline_fd, after_s, then), name="lifeline", daemon=True
    ).start()


def _watch(lifeline_fd: int | None, after_s: float, then: Callable[[], None]) -> None:
    poll = select.poll()
    if lifeline_fd is not None:
        poll.register(lifeline_fd, select.POLLIN | select.POLLHUP)
    if poll.poll(after_s * 1000):
        _end()
    then()
    if lifeline_fd is not None:
        poll.poll()
        _end()


def _end() -> NoReturn:
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # the data-loader workers too
    os._exit(1)
