"""Identity and state of processes.

A pid may be given to a later process, and another computer has its own, so a process is identified
by its pid, its birth and the name of its computer. Nothing is looked up by a pid alone that came
from another process: such a pid is in a Process. psutil
computes the birth from the wall clock, so a step of the clock (NTP, a laptop that wakes) moves it.
On Linux the birth is in ticks since the computer started, with the id of that start.
"""

from __future__ import annotations

import os
import signal
import socket
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
    """A process of a computer, and no later one with its pid.

    Args:
        pid: Its number on that computer.
        birth: As `birth_of` returns it there.
        host: As `host_name` returns it there; "": this one, as of versions that did not store it.
    """

    pid: int
    birth: str
    host: str = ""

    @classmethod
    def of(cls, pid: int) -> Process:
        """Return the process that has this pid here now; without birth if it has ended."""
        return cls(pid, birth_of(pid) or "", host_name())

    @property
    def is_here(self) -> bool:
        """Whether it is, or was, a process of this computer."""
        # The name of a computer may change while it runs, the id of its start does not.
        is_of_this_start = bool(boot := _boot_id()) and self.birth.endswith(f"@{boot}")
        return self.host in ("", host_name()) or is_of_this_start

    @property
    def on_host(self) -> str:
        """What follows its pid in a message: " on HOST", or "" if that is this computer."""
        return "" if self.is_here else f" on {self.host}"

    @property
    def is_alive(self) -> bool:
        """Whether it lives; False if it is another computer's, where that cannot be seen."""
        return self.is_here and birth_of(self.pid) == self.birth

    @property
    def is_frozen(self) -> bool:
        """Whether it is stopped (SIGSTOP, a debugger); False if it is another computer's."""
        return self.is_here and is_frozen(self.pid)

    def wait(self, timeout_s: float) -> bool:
        """Return whether it has ended in time."""
        deadline = time.monotonic() + timeout_s
        while self.is_alive:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def end(self, timeout_s: float) -> bool:
        """Terminate it, kill it after the timeout or if it is stopped; return whether it ended.

        One of another computer is left alone, and False is returned.
        """
        if not self.is_here:
            return False
        patience_s = 0.0 if self.is_frozen else timeout_s
        return self._send(signal.SIGTERM, patience_s) or self._send(signal.SIGKILL, timeout_s)

    def _send(self, number: signal.Signals, patience_s: float) -> bool:
        if self.is_alive:
            with suppress(ProcessLookupError):  # it ended meanwhile
                os.kill(self.pid, number)
        return self.wait(patience_s)


def host_name() -> str:
    """Return the name of this computer, by which processes of others tell theirs from ours."""
    return socket.gethostname()


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
