"""Determines whether the kernel killed a process because memory ran out, or a program did.

The process gets SIGKILL in both cases. The evidence, best first:

    its log names the pid          /dev/kmsg, where it may be read
    its counter has grown          `oom_kill` of the control group: memory.events (version 2) or
                                   memory.oom_control (version 1). Ranks of one agent share a group
                                   in general, so each failure is compared with the one before
    the computer's counter has     `oom_kill` of /proc/vmstat
      not grown

Which processes held the memory is taken from the sampler's last readings, or else read from ranks
that still run; so it is read before the other ranks of the gang are killed. systemd-oomd and
similar programs are not the kernel: they count as programs here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL

import psutil

from det_jupyter.agent.devices.kernel_log import KernelKill, KernelLog, parse_kills
from det_jupyter.contract.host.control_groups import ControlGroup, num_killed, read_text
from det_jupyter.contract.messages import GangExited, MemoryHolder, MemoryShortage

_LEAST_SHARE = 0.02  # share of the limit; processes with less memory are left out
_MOST_HOLDERS = 6
_MOST_OTHERS = 2  # most processes named that are no ranks


@dataclass(frozen=True, slots=True)
class KillCounts:
    """How many processes the kernel has killed for want of memory; None: it is not counted."""

    of_group: int | None
    of_computer: int | None


@dataclass(frozen=True, slots=True)
class MemoryEvidence:
    """The evidence about a failure: a shortage of memory, or that there was none."""

    shortage: MemoryShortage | None = None
    had_memory: bool = False

    def added_to(self, exited: GangExited) -> GangExited:
        """Return the report of a gang's end, with this evidence added."""
        found = {"memory": self.shortage, "had_memory": self.had_memory}
        return exited.model_copy(update=found)


def is_out_of_memory(
    pid: int | None, kills: Iterable[KernelKill], before: KillCounts, now: KillCounts
) -> bool | None:
    """Return whether the kernel has killed for want of memory; None if that is not known.

    Args:
        pid: The process that was killed. None: its pid is unknown, so any killed process counts.
        kills: Kills in the kernel's log since `before`.
    """
    if any(pid in (kill.pid, None) for kill in kills):
        return True
    if before.of_group is not None and now.of_group is not None:
        return now.of_group > before.of_group
    if before.of_computer is not None and now.of_computer == before.of_computer:
        return False
    return None


class MemoryWatch:
    """Finds out why ranks were killed. One for all gangs of an agent process.

    Args:
        log: The kernel's log.
        proc: /proc.
        groups: Where control groups are mounted.
    """

    def __init__(
        self,
        log: KernelLog | None = None,
        *,
        proc: Path = Path("/proc"),
        groups: Path = Path("/sys/fs/cgroup"),
    ) -> None:
        self._log = log or KernelLog()
        self._proc, self._groups = proc, groups
        self._group = self._group_of("self")
        self._counts = self._count()
        self._held: dict[str, int] = {}  # bytes by source: rank:ALLOCATION:RANK, workers:...

    def started(self) -> None:
        """Ignore earlier kills from now on; call it when a gang has started."""
        self._log.read()
        self._counts = self._count()

    def note(self, held: Mapping[str, float | None]) -> None:
        """Store the memory of all ranks and their workers in bytes, by the sampler's source.

        Args:
            held: Bytes by source; None: they were not read this time.
        """
        found = {source: self._held.get(source) if n is None else n for source, n in held.items()}
        self._held = {source: int(n) for source, n in found.items() if n is not None}

    def look(
        self, allocation_id: str, rank: int, exit_code: int | None, pids: Mapping[int, int]
    ) -> MemoryEvidence:
        """Return what is known of the memory when a rank has failed.

        Args:
            pids: Pids of the gang's ranks, including the one that has failed.
        """
        kills = parse_kills(self._log.read())
        before, self._counts = self._counts, self._count()
        was_killed = exit_code == -SIGKILL
        found = is_out_of_memory(
            pids.get(rank) if was_killed else None, kills, before, self._counts
        )
        if not found:
            return MemoryEvidence(had_memory=was_killed and found is False)
        is_counted = (self._counts.of_group or 0) > (before.of_group or 0)
        limit, is_of_group = self._limit(kills)
        killed = {kill.pid: kill.num_bytes for kill in kills}
        shortage = MemoryShortage(
            limit_bytes=limit,
            is_of_group=is_of_group,
            holders=self._holders(
                allocation_id, rank, pids, killed, limit, is_of_group=is_of_group
            ),
            pids=[] if is_counted else sorted(killed),
        )
        return MemoryEvidence(shortage)

    def _limit(self, kills: Iterable[KernelKill]) -> tuple[int, bool]:
        """Return the limit that was reached, and whether it is that of a control group."""
        total = psutil.virtual_memory().total
        limit = self._group.limit_bytes()
        is_limited = limit is not None and limit < total
        of_group = [kill.limit_bytes for kill in kills if kill.is_of_group]
        if of_group and not is_limited:  # the kills were in another group than the agent's
            return min(of_group), True
        if any(not kill.is_of_group for kill in kills) or limit is None or not is_limited:
            return total, False
        return limit, True

    def _holders(
        self,
        allocation_id: str,
        rank: int,
        pids: Mapping[int, int],
        killed: Mapping[int, int],
        limit: int,
        *,
        is_of_group: bool,
    ) -> list[MemoryHolder]:
        held = {**_living(pids), **self._of_sources(allocation_id)}
        pid = pids.get(rank)
        if pid is not None and pid in killed:
            held[f"rank {rank}"] = killed[pid]
        own = [(f"rank {rank}", held.pop(f"rank {rank}", 0))]
        workers = f"the loader workers of rank {rank}"
        if pid not in killed:
            held[workers] = max(held.get(workers, 0), sum(killed.values()))
        group = read_text(self._proc / "self" / "cgroup") if is_of_group else ""
        others = [*held.items(), *self._others({*pids.values(), os.getpid()}, group)]
        if shared := _shared_bytes():
            others.append(("/dev/shm", shared))
        others.sort(key=lambda item: -item[1])
        large = [item for item in others if item[1] > _LEAST_SHARE * limit]
        return [
            MemoryHolder(name=name, num_bytes=num_bytes)
            for name, num_bytes in [*own, *large][:_MOST_HOLDERS]
            if num_bytes
        ]

    def _others(self, ours: set[int], group: str) -> list[tuple[str, int]]:
        """Return the largest processes that are neither `ours` nor below them.

        Args:
            ours: Pids of ranks and of the agent.
            group: Content of /proc/PID/cgroup of the processes that count; "": all do.
        """
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                pid = process.pid
                if pid in ours or os.getpgid(pid) in ours:
                    continue
                if not group or read_text(self._proc / str(pid) / "cgroup") == group:
                    found.append((f"{process.name()} (pid {pid})", _own_bytes(process)))
        return sorted(found, key=lambda item: -item[1])[:_MOST_OTHERS]

    def _of_sources(self, allocation_id: str) -> dict[str, int]:
        named: dict[str, int] = {}
        for source, num_bytes in self._held.items():
            kind, allocation, rank = source.split(":")
            trial = "" if allocation == allocation_id else f" of trial {allocation.split('.')[1]}"
            role = f"rank {rank}" if kind == "rank" else f"the loader workers of rank {rank}"
            named[f"{role}{trial}"] = num_bytes
        return named

    def _count(self) -> KillCounts:
        return KillCounts(self._group.num_killed(), num_killed(self._proc / "vmstat"))

    def _group_of(self, pid: str) -> ControlGroup:
        return ControlGroup(read_text(self._proc / pid / "cgroup"), self._groups)


def _living(pids: Mapping[int, int]) -> dict[str, int]:
    """Return the memory of the ranks that still live, by name."""
    found = {}
    for rank, pid in pids.items():
        with suppress(psutil.Error):
            found[f"rank {rank}"] = _own_bytes(psutil.Process(pid))
    return found


def _own_bytes(process: psutil.Process) -> int:
    """Return the memory of a process, without mapped files and shared memory."""
    memory = process.memory_info()
    return max(0, int(memory.rss) - int(getattr(memory, "shared", 0)))


def _shared_bytes() -> int:
    """Return how much of /dev/shm is in use; 0 if there is none."""
    try:
        disk = os.statvfs("/dev/shm")
    except OSError:
        return 0
    return (disk.f_blocks - disk.f_bfree) * disk.f_frsize
