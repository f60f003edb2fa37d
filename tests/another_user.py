"""Runs a function in a process of another user of the computer. Only root can start it."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from pathlib import Path

NOBODY = 65534


def as_another_user(
    attempt: Callable[[], str], *, folder: Path | None = None, limit_s: float = 3.0
) -> str:
    """Return what `attempt` returns in a process of another user; "refused" if nothing in time.

    Args:
        folder: The process's working directory, even if the other user cannot reach it.
    """
    reader, writer = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            if folder is not None:
                os.chdir(folder)
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            answer = attempt().encode()
            while answer:
                answer = answer[os.write(writer, answer) :]
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        is_answered, _, _ = select.select([pipe], [], [], limit_s)
        answered = pipe.read() if is_answered else "refused"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return answered
