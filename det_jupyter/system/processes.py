"""Which process is meant, though its number be given to another one later.

A pid and the moment of birth name a process for good. psutil works the moment out from the wall
clock, so a step of that (NTP, a laptop that wakes) moves it. Linux itself counts the ticks since
the computer started, which nothing moves: those are taken, with the id of that start.
"""

from __future__ import annotations

import sys
from pathlib import Path

import psutil

_ENDED = ("Z", "X")
_STOPPED = ("T", "t")  # by a signal, by a debugger
_STATE, _START_TICKS, _EXIT_STATUS = (
    0,
    19,
    49,
)  # fields of /proc/PID/stat, from the one after the name on


def birth_of(pid: int) -> str | None:
    """Return what no other process of that number will ever have; None: it does not live.

    A process that has ended and waits to be reaped does not live either.
    """
    if sys.platform == "linux":
        fields = _stat(pid)
        if not fields or fields[_STATE] in _ENDED:
            return None
        return f"{fields[_START_TICKS]}@{_boot_id()}"
    try:
        process = psutil.Process(pid)
        is_over = process.status() == psutil.STATUS_ZOMBIE
        return None if is_over else str(process.create_time())
    except psutil.NoSuchProcess:
        return None


def is_frozen(pid: int) -> bool:
    """Return whether a process is stopped (SIGSTOP, a debugger): it answers nobody until SIGCONT.

    False of a process that does not exist.
    """
    if sys.platform == "linux":
        fields = _stat(pid)
        return bool(fields) and fields[_STATE] in _STOPPED
    try:
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return False


def exit_status_of(pid: int) -> int | None:
    """Return how a process of ours that waits to be reaped has ended, as `os.wait` tells it.

    None where that cannot be known, or as long as it lives.
    """
    fields = _stat(pid) if sys.platform == "linux" else []
    is_over = len(fields) > _EXIT_STATUS and fields[_STATE] in _ENDED
    return int(fields[_EXIT_STATUS]) if is_over else None


def _stat(pid: int) -> list[str]:
    """Return the fields after the name, which may itself hold anything; none: no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # ESRCH, too, when it ends while it is read
        return []
    return text.rpartition(")")[2].split()


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:  # some sandboxes have none; the ticks do nearly as well
        return ""
