"""Locks that programs hold while they live: one master, one agent, and each feeder its own.

The file of a lock names its holder (processes.py), so that `det master stop --everything` ends
that process and no later one with its pid. Standard library only, on Linux: a master takes its
lock before it imports anything else.
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
from det_jupyter.contract.host.processes import Process

_POLL_S = 0.02


def take_lock(
    path: Path, *, timeout_s: float, is_hopeless: Callable[[], bool] = lambda: False
) -> int | None:
    """Return a descriptor that holds the lock while this process lives; None if another has it.

    A timeout is needed because `is_locked` holds the lock for an instant, and a process that ends
    for a moment.

    Args:
        is_hopeless: Returns whether the present holder will keep it.
    """
    descriptor = _lock(path, os.O_RDWR | os.O_CREAT, timeout_s, is_hopeless)
    if descriptor is not None:
        _name_holder(descriptor)
    return descriptor


def remove_lock(path: Path, *, timeout_s: float) -> bool:
    """Remove a lock file that no process holds; return whether it is gone."""
    try:
        descriptor = _lock(path, os.O_RDWR, timeout_s)
    except FileNotFoundError:
        return True
    if descriptor is None:
        return False
    path.unlink()  # held by us, so that no other process holds what is removed
    os.close(descriptor)
    return True


def _lock(
    path: Path, flags: int, timeout_s: float, is_hopeless: Callable[[], bool] = lambda: False
) -> int | None:
    """Return a descriptor that holds the lock of the file at this path; None if another has it."""
    import fcntl  # Windows has none; only the training library runs there

    deadline = time.monotonic() + timeout_s
    while True:
        descriptor = open_own(path, flags)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            if is_hopeless() or time.monotonic() > deadline:
                return None
            time.sleep(_POLL_S)
            continue
        if _is_at(path, descriptor):
            return descriptor
        os.close(descriptor)  # another process has removed that file since we opened it


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _name_holder(descriptor: int) -> None:
    name = asdict(Process.of(os.getpid()))
    with suppress(OSError):  # the disk is full: the lock holds without a name
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(name).encode(), 0)


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


def holder_of(path: Path) -> Process | None:
    """Return the process that holds this lock file.

    It may be one of another computer, if the file is on a drive that both have. None if no process
    holds it, or one that its file does not name: it took the lock just now, or is of an older
    version.
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
        holder = Process(int(named["pid"]), str(named["birth"]), str(named.get("host", "")))
    except (ValueError, KeyError, TypeError):
        return None
    return None if holder.is_here and not holder.is_alive else holder
