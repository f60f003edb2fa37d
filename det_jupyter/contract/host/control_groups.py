"""Control groups: how much memory they allow, and how many processes died of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import psutil

_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
_LIMIT = re.compile(r"^hierarchical_memory_limit (\d+)$", re.MULTILINE)
_CACHED = re.compile(r"^inactive_file (\d+)$", re.MULTILINE)  # files, which the kernel drops
_ROOT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


class ControlGroup:
    """The control group of a process, as far as it limits memory.

    Args:
        cgroup: Content of /proc/PID/cgroup.
        root: Where the control groups are mounted.
    """

    def __init__(self, cgroup: str, root: Path = _ROOT) -> None:
        self._folders: list[Path] = []
        self._events = "memory.events"
        for line in cgroup.splitlines():
            _, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(","):
                self._events, root = "memory.oom_control", root / "memory"
            elif controllers:
                continue
            own = root / path.lstrip("/")
            # In a container the path is the host's, and its group is mounted as the root.
            while not os.path.exists(own / self._events) and own != root:
                own = own.parent
            self._folders = [own, *(each for each in own.parents if each.is_relative_to(root))]
            if self._events == "memory.oom_control":
                break

    def num_killed(self) -> int | None:
        """Return how many of its processes the kernel has killed; None if unknown."""
        return num_killed(self._folders[0] / self._events) if self._folders else None

    def limit_bytes(self) -> int | None:
        """Return the memory limit of the control group; None if it has none."""
        return min((limit for _, limit in self._limits()), default=None)

    def free_bytes(self) -> int | None:
        """Return how much memory its processes may still take; None if it has no limit."""
        free = []
        for folder, limit in self._limits():
            used = read_text(folder / "memory.current") or read_text(
                folder / "memory.usage_in_bytes"
            )
            cached = _CACHED.search(read_text(folder / "memory.stat"))
            free.append(limit - int(used or 0) + (int(cached[1]) if cached else 0))
        return min(free, default=None)

    def _limits(self) -> Iterator[tuple[Path, int]]:
        for folder in self._folders:
            found = _LIMIT.search(read_text(folder / "memory.stat"))
            text = found[1] if found else read_text(folder / "memory.max").strip()
            if text.isdecimal():
                yield folder, int(text)


def usable_memory(cgroup: Path = _OWN, root: Path = _ROOT) -> int:
    """Return the bytes of memory that this process may use: the computer's, or its group's."""
    limit = ControlGroup(read_text(cgroup), root).limit_bytes()
    total = int(psutil.virtual_memory().total)
    return total if limit is None else min(total, limit)


def free_memory(cgroup: Path = _OWN, root: Path = _ROOT) -> int:
    """Return the bytes of memory that this process may still take, as `usable_memory`."""
    free = ControlGroup(read_text(cgroup), root).free_bytes()
    available = int(psutil.virtual_memory().available)
    return available if free is None else min(available, free)


def num_killed(path: Path) -> int | None:
    """Return the count of killed processes in a file of the kernel; None if it has none."""
    found = _COUNT.search(read_text(path))
    return int(found[1]) if found else None


def read_text(path: Path) -> str:
    """Return a file's text; "" if it cannot be read."""
    try:
        return path.read_text(errors="replace")  # a group's name may be any bytes
    except OSError:
        return ""
