"""Lock files: master and agent each hold one until they exit.

The file contains the identity of its holder (processes.py), so that `det master stop --everything`
ends that process and not a later one with the same pid. Standard library only, on Linux: a master
takes its lock before it imports anything else.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from det_jupyter.contract.host.ownership import open_own
from det_jupyter.contract.host.processes import ProcessIdentity

_POLL_S = 0.02


def take_lock(
    path: Path, *, timeout_s: float, should_give_up: Callable[[], bool] = lambda: False
) -> int | None:
    """Take the lock until this process exits; return its descriptor, None if another has it.

    A timeout is needed because `is_locked` holds the lock for an instant, and a process that is
    exiting for a moment.

    Args:
        should_give_up: Called while another process has the lock; if it returns True, the rest of
            the timeout is not waited for.
    """
    descriptor = _lock(path, timeout_s, should_give_up)
    if descriptor is not None:
        _write_holder(descriptor)
    return descriptor


def _lock(path: Path, timeout_s: float, should_give_up: Callable[[], bool]) -> int | None:
    import fcntl  # not on Windows, where only the training library runs

    deadline = time.monotonic() + timeout_s
    while True:
        descriptor = open_own(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            if should_give_up() or time.monotonic() > deadline:
                return None
            time.sleep(_POLL_S)
            continue
        if _is_file_at(path, descriptor):
            return descriptor
        os.close(descriptor)  # another process has deleted that file since we opened it


def _is_file_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _write_holder(descriptor: int) -> None:
    holder = asdict(ProcessIdentity.of(os.getpid()))
    with suppress(OSError):  # the disk is full: the lock is valid without it
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(holder).encode(), 0)


def is_locked(path: Path) -> bool:
    """Return whether a process holds this lock file."""
    import fcntl

    try:
        descriptor = open_own(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)  # this also releases the lock
    return False


def holder_of(path: Path) -> ProcessIdentity | None:
    """Return the process that holds this lock file.

    On a shared drive it may be a process of another computer. None if no process holds it, or if
    the file does not contain its holder: it has just taken the lock, or is of an older version.
    """
    if not is_locked(path):
        return None
    try:
        descriptor = open_own(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        text = file.read()
    try:
        named = json.loads(text)
        holder = ProcessIdentity(
            int(named["pid"]), str(named["birth"]), str(named.get("host", ""))
        )
    except (ValueError, KeyError, TypeError):
        return None
    return None if holder.is_here and not holder.is_alive else holder
