"""Identity and state of processes.

Pids are reused, and each computer has its own, so a process is identified by pid, birth and the
name of its computer. A pid that comes from another process is only used within a
ProcessIdentity. psutil computes the birth from the wall clock, so a step of the clock (NTP, a
laptop that wakes) changes it. On Linux the birth is in kernel ticks since boot, with the boot id.
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
# fields of /proc/PID/stat after the name
_STATE, _START_TICKS, _ARGUMENTS, _END_OF_ARGUMENTS, _EXIT_STATUS = 0, 19, 45, 46, 49


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Identity of a process: no later process with its pid equals it.

    Args:
        pid: Its number on its computer.
        birth: What `birth_of` returns for it there.
        host: What `host_name` returns there; "" (stored by older versions) is this computer.
    """

    pid: int
    birth: str
    host: str = ""

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity:
        """Return the process that has this pid here now; its birth is "" if there is none."""
        return cls(pid, birth_of(pid) or "", host_name())

    @property
    def is_here(self) -> bool:
        """Whether the process is, or was, one of this computer."""
        # A computer's name may change while it runs, its boot id does not.
        is_of_this_boot = bool(boot := _boot_id()) and self.birth.endswith(f"@{boot}")
        return self.host in ("", host_name()) or is_of_this_boot

    @property
    def on_host(self) -> str:
        """The end of a message about it: " on HOST", or "" if it is of this computer."""
        return "" if self.is_here else f" on {self.host}"

    @property
    def is_alive(self) -> bool:
        """Whether the process runs; False on another computer, where it cannot be examined."""
        return self.is_here and birth_of(self.pid) == self.birth

    @property
    def is_frozen(self) -> bool:
        """Whether the process is stopped (SIGSTOP, a debugger); False on another computer."""
        return self.is_here and is_frozen(self.pid)

    def started_no_later_than(self, other: ProcessIdentity) -> bool:
        """Return whether this process was started before the other, or in the same moment.

        False if that is unknown: a birth is empty, or the two are of different computers.

        >>> first = ProcessIdentity(1, "70@boot")
        >>> first.started_no_later_than(ProcessIdentity(2, "71@boot"))
        True
        >>> first.started_no_later_than(ProcessIdentity(2, "71@boot of another one"))
        False
        """
        own_start, _, own_boot = self.birth.partition("@")
        other_start, _, other_boot = other.birth.partition("@")
        if not own_start or not other_start or own_boot != other_boot:
            return False
        return float(own_start) <= float(other_start)

    def wait(self, timeout_s: float) -> bool:
        """Wait until it has exited; return False if it still runs after the timeout."""
        deadline = time.monotonic() + timeout_s
        while self.is_alive:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def end(self, timeout_s: float) -> bool:
        """Terminate the process, or kill it after the timeout; return whether it has exited.

        A stopped process is killed at once. A process of another computer gets no signal, and
        False is returned.
        """
        if not self.is_here:
            return False
        term_timeout_s = 0.0 if self.is_frozen else timeout_s
        return self._send(signal.SIGTERM, term_timeout_s) or self._send(signal.SIGKILL, timeout_s)

    def _send(self, number: signal.Signals, timeout_s: float) -> bool:
        if self.is_alive:
            with suppress(ProcessLookupError):  # the process has exited meanwhile
                os.kill(self.pid, number)
        return self.wait(timeout_s)


def host_name() -> str:
    """Return the name of this computer."""
    return socket.gethostname()


def birth_of(pid: int) -> str | None:
    """Return an id that no other process with this pid has; None if the process has exited.

    A zombie has exited, too.
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
    """Return the status, as of `os.wait`, of a child of ours that is a zombie.

    None if it still runs, or on systems other than Linux.
    """
    fields = _stat(pid) if sys.platform == "linux" else []
    is_over = len(fields) > _EXIT_STATUS and fields[_STATE] in _ENDED
    return int(fields[_EXIT_STATUS]) if is_over else None


def rename_own(name: str) -> None:
    """Give this forked process another name than its parent's in process lists. Linux only.

    The name replaces all arguments after the interpreter's, by which our programs are found
    (`run_processes.py`). `top` shows its last part.
    """
    if sys.platform != "linux" or not (fields := _stat(os.getpid())):
        return
    begin, end = int(fields[_ARGUMENTS]), int(fields[_END_OF_ARGUMENTS])
    with suppress(OSError, ValueError), open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(begin)
        begin += memory.read(end - begin).index(b"\0") + 1
        if begin < end:
            memory.seek(begin)
            memory.write(os.fsencode(name)[: end - begin - 1].ljust(end - begin, b"\0"))
    with suppress(OSError):
        Path("/proc/self/comm").write_text(f"det-{name.rpartition('.')[2]}", encoding="utf-8")


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name; [] if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # includes ESRCH: the process exits meanwhile
        return []
    # The name may contain any character, also ")".
    return text.rpartition(")")[2].split()


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:  # some sandboxes have none; the ticks alone are nearly unique
        return ""
