"""Reports processes of a run that are stopped (by SIGSTOP or a debugger).

A stopped process keeps its connections, so the other ranks wait for it in their next collective:
for half an hour in a collective of gloo or NCCL, for a day in one of the Core API. They cannot
find the reason. So the agent checks every 10 s, and writes a notice into the journal of the
stopped rank.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import psutil

from det_jupyter.agent.runs.active_run import LivingGang
from det_jupyter.agent.runs.run import AgentRun
from det_jupyter.contract.host.processes import is_frozen
from det_jupyter.contract.host.run_processes import processes_of
from det_jupyter.contract.host.rundir import append_to_journal
from det_jupyter.contract.run.journal import Notice, to_line

logger = logging.getLogger(__name__)

_CHECK_S = 10.0


async def report_stopped(living: Callable[[], Sequence[LivingGang]]) -> None:
    """Report processes that two checks in a row find stopped; runs until cancelled.

    Two, because a process that is traced stops for an instant now and then. A check takes 0.02 ms
    for each process of the computer.

    Args:
        living: Returns the gangs that have running ranks.
    """
    before: set[int] = set()
    reported: set[int] = set()
    while True:
        await asyncio.sleep(_CHECK_S)
        gangs = living()
        frozen = await asyncio.to_thread(_find_stopped, gangs) if gangs else {}
        for pid in before & frozen.keys() - reported:
            _report(pid, *frozen[pid])
        reported = before & frozen.keys()
        before = set(frozen)


def _find_stopped(gangs: Sequence[LivingGang]) -> dict[int, tuple[AgentRun, int]]:
    """Return the run and rank of each stopped process of these gangs, by pid."""
    frozen = list(filter(is_frozen, psutil.pids()))
    return {
        process.pid: (run, min(_rank_of(process, ranks), run.ranks[-1]))
        for run, ranks in gangs
        for process in processes_of(run.dir, frozen)
    }


def _rank_of(process: psutil.Process, ranks: Mapping[int, int]) -> int:
    """Return the rank that a process is or belongs to; the lowest in `ranks` if unknown."""
    with suppress(psutil.Error, OSError):  # the process has ended
        value = process.environ().get("RANK", "")  # set for a worker that a launcher has started
        if value.isdecimal():
            return int(value)
        group = os.getpgid(process.pid)  # a rank and its data-loader workers are one process group
        return next((rank for rank, pid in ranks.items() if pid == group), min(ranks))
    return min(ranks)


def _report(pid: int, run: AgentRun, rank: int) -> None:
    text = (
        f"process {pid} of rank {rank} is stopped, by a signal or a debugger, and other ranks may "
        f"wait for it; `kill -CONT {pid}` lets it continue"
    )
    logger.warning("allocation=%s: %s", run.id, text)
    try:
        append_to_journal(
            run.dir.journal(rank), to_line(Notice(at=time.time(), rank=rank, text=text))
        )
    except OSError as error:  # the disk is full, or user code has removed the folder
        logger.warning("allocation=%s: the notice cannot be written: %s", run.id, error)
