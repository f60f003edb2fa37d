"""Reads the kernel's log: processes that it killed because memory ran out.

/dev/kmsg returns one record for each read, from where the file was positioned:

    3,4899,37759945724,-;Memory cgroup out of memory: Killed process 16740 (python3) total-vm:...

Many systems allow only root to read it (`kernel.dmesg_restrict`); in a container, its pids are
those of the host.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

KERNEL_LOG = Path("/dev/kmsg")
_KILLED = re.compile(
    r"[Oo]ut of memory(?: \(oom_kill_allocating_task\))?: Kill(?:ed)? process (?P<pid>\d+) "
    r"\((?P<name>.*?)\)[ ,].*?anon-rss:(?P<anon>\d+)kB(?:.*?shmem-rss:(?P<shared>\d+)kB)?"
)
# Precedes the line above if the limit is a control group's.
_LIMIT = re.compile(r"memory: usage \d+kB, limit (\d+)kB")
_MOST_BYTES = 1 << 16  # most bytes of a record
_MOST_RECORDS = 20_000  # records read in one call; the kernel's buffer has fewer


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelKill:
    """A process that the kernel killed because memory had run out."""

    pid: int
    name: str
    num_bytes: int  # its own memory, without that of files
    is_of_group: bool  # the limit of a control group was reached
    limit_bytes: int = 0  # that limit; 0: not known


class KernelLog:
    """The messages of the kernel's log from now on; none if it cannot be read."""

    def __init__(self, path: Path = KERNEL_LOG) -> None:
        self._fd: int | None = None
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError:  # it does not exist, or this user may not read it
            self.close()

    def read(self) -> list[str]:
        """Return the messages since the last call."""
        messages: list[str] = []
        if self._fd is None:
            return messages
        for _ in range(_MOST_RECORDS):
            try:
                records = os.read(self._fd, _MOST_BYTES)
            except BrokenPipeError:  # the oldest records were overwritten; continue after them
                continue
            except OSError:  # there is no other record
                break
            if not records:
                break
            messages += [_message(line) for line in records.splitlines() if line[:1] != b" "]
        return messages

    def close(self) -> None:
        """Close the log."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _message(record: bytes) -> str:
    return record.partition(b";")[2].decode(errors="replace")


def parse_kills(messages: Iterable[str]) -> list[KernelKill]:
    """Return the processes that were killed, according to these messages.

    >>> killed = "Out of memory: Killed process 7 (python) total-vm:9kB, anon-rss:2kB"
    >>> [(kill.pid, kill.name, kill.num_bytes) for kill in parse_kills(["usb 1-1", killed])]
    [(7, 'python', 2048)]
    """
    kills, limit = [], 0
    for message in messages:
        if found := _LIMIT.match(message):
            limit = 1024 * int(found[1])
        elif found := _KILLED.search(message):
            is_of_group = message.startswith("Memory cgroup")
            kills.append(
                KernelKill(
                    pid=int(found["pid"]),
                    name=found["name"],
                    num_bytes=1024 * (int(found["anon"]) + int(found["shared"] or 0)),
                    is_of_group=is_of_group,
                    limit_bytes=limit if is_of_group else 0,
                )
            )
    return kills
