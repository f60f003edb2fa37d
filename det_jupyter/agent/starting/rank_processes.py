"""Rank processes of the agent, forked or spawned: their exits, and how to end them."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass

from pydantic import TypeAdapter

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.processes import ProcessIdentity, birth_of, exit_status_of
from det_jupyter.contract.host.run_processes import kill_run_processes
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.messages import Loss

logger = logging.getLogger(__name__)

_POLL_S = 0.01


class StartFailed(Exception):
    """Ranks could not be started; another attempt may succeed.

    Args:
        problem: Why.
        loss: Why the ranks were lost, if that is not a failure of the trial.
    """

    def __init__(self, problem: str, loss: Loss | None = None) -> None:
        super().__init__(problem)
        self.loss = loss


@dataclass(frozen=True, slots=True)
class RankExit:
    """The exit of a rank; `exit_code` is None if its parent exited before it."""

    rank: int
    exit_code: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProcesses:
    """The processes of a gang that was just started.

    Args:
        pids: Pids by rank.
        exits: Receives the exit of each rank.
        note: How the processes were started, for the master.
    """

    pids: dict[int, int]
    exits: asyncio.Queue[RankExit]
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """An entry of ranks.json: a rank and its process (see `ProcessIdentity`)."""

    rank: int
    pid: int
    birth: str = ""  # older versions wrote another field; their ranks are ignored
    host: str = ""


_RECORDS = TypeAdapter(list[ProcessRecord])


def kill_group(pid: int) -> None:
    """Kill the process group of a rank: the rank and the processes that it started."""
    # macOS raises EPERM if only a zombie is left
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


async def until_gone(pid: int) -> None:
    """Wait until a process has ended, reaped or not."""
    while not has_ended(pid):
        await asyncio.sleep(_POLL_S)


def has_ended(pid: int) -> bool:
    """Return whether a process has ended, reaped or not."""
    return birth_of(pid) is None


def exit_code_of(pid: int) -> int | None:
    """Return the exit code of a process that has ended and was not reaped; else None."""
    status = exit_status_of(pid)
    return None if status is None else os.waitstatus_to_exitcode(status)


def write_records(run_dir: RunDir, pids: Mapping[int, int]) -> None:
    """Write ranks.json: the processes that the next agent ends if this one is killed."""
    records = []
    for rank, pid in pids.items():
        process = ProcessIdentity.of(pid)
        if process.birth:
            records.append(ProcessRecord(rank=rank, **asdict(process)))
    paths.write_private(run_dir.ranks, _RECORDS.dump_json(records).decode())


def end_survivors(run_dir: RunDir, timeout_s: float = 5.0) -> None:
    """End the ranks of an agent that was killed. On Linux the kernel has killed them already."""
    try:
        records = _RECORDS.validate_json(run_dir.ranks.read_bytes())
    except FileNotFoundError:
        return
    survivors = [record for record in records if _is_alive(record)]
    for record in survivors:
        logger.warning("rank=%d pid=%d outlived its agent: killed", record.rank, record.pid)
        kill_group(record.pid)
    deadline = time.monotonic() + timeout_s
    while any(map(_is_alive, survivors)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    kill_run_processes(run_dir)  # a launcher's workers


def _is_alive(record: ProcessRecord) -> bool:
    return ProcessIdentity(record.pid, record.birth, record.host).is_alive
