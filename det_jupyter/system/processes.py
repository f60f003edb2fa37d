"""Identity and state of processes.

A pid may be given to a later process, so a process is identified by its pid and its birth. psutil
computes the birth from the wall clock, so a step of the clock (NTP, a laptop that wakes) moves it.
On Linux the birth is in ticks since the computer started, with the id of that start.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_POLL_S = 0.02
_ENDED = ("Z", "X")
_STOPPED = ("T", "t")  # by a signal, by a debugger
_STATE, _START_TICKS, _EXIT_STATUS = 0, 19, 49  # fields of /proc/PID/stat after the name


@dataclass(frozen=True, slots=True)
class Process:
    """A process, and no later one with its pid."""

    pid: int
    birth: str

    @property
    def is_alive(self) -> bool:
        return birth_of(self.pid) == self.birth

    def wait(self, timeout_s: float) -> bool:
        """Return whether it has ended in time."""
        deadline = time.monotonic() + timeout_s
        while self.is_alive:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def end(self, timeout_s: float) -> bool:
        """Terminate it, kill it after the timeout or if it is stopped; return whether it ended."""
        patience_s = 0.0 if is_frozen(self.pid) else timeout_s
        return self._send(signal.SIGTERM, patience_s) or self._send(signal.SIGKILL, timeout_s)

    def _send(self, number: signal.Signals, patience_s: float) -> bool:
        if self.is_alive:
            with suppress(ProcessLookupError):  # it ended meanwhile
                os.kill(self.pid, number)
        return self.wait(patience_s)


def birth_of(pid: int) -> str | None:
    """Return an id that no other process with this pid has; None if the process has ended.

    A process that waits to be reaped has ended, too.
    """
    if sys.platform == "linux":
        fields = _stat(pid)
        if not fields or fields[_STATE] in _ENDED:
            return None
        return f"{fields[_START_TICKS]}@{_boot_id()}"
    import psutil  # not at the top: see locks.py

    try:
        process = psutil.Process(pid)
        is_over = process.status() == psutil.STATUS_ZOMBIE
        return None if is_over else str(process.create_time())
    except psutil.NoSuchProcess:
        return None


def is_frozen(pid: int) -> bool:
    """Return whether a process is stopped (SIGSTOP, a debugger); False if it does not exist."""
    if sys.platform == "linux":
        fields = _stat(pid)
        return bool(fields) and fields[_STATE] in _STOPPED
    import psutil

    try:
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return False


def exit_status_of(pid: int) -> int | None:
    """Return the status, as of `os.wait`, of our child that waits to be reaped.

    None if it lives, or the system does not say.
    """
    fields = _stat(pid) if sys.platform == "linux" else []
    is_over = len(fields) > _EXIT_STATUS and fields[_STATE] in _ENDED
    return int(fields[_EXIT_STATUS]) if is_over else None


def _stat(pid: int) -> list[str]:
    """Return the fields after the name, which may contain any character; [] without a process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # also ESRCH, if it ends meanwhile
        return []
    return text.rpartition(")")[2].split()


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:  # some sandboxes have none; the ticks alone nearly suffice
        return ""
