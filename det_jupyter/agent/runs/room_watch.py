"""Reports which runs wait for room on a disk, and how full an agent's disk is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from det_jupyter.agent.runs.runner import Runner
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.disk_space import room_of
from det_jupyter.contract.messages import DiskReading, DisksSeen

_WAITS_S = 1.0  # interval in which control pages are read
_DISKS_EVERY = 10  # the disk is read once in this number of intervals


async def watch_room(runner: Runner, report: Callable[[DisksSeen], None] | None) -> None:
    """Note in each run whether its ranks wait for room; runs until cancelled.

    Args:
        runner: The runs; its `news` is set when one has changed.
        report: Called with the disk of the data folder every few seconds. None: the master is on
            this computer and reads the disk itself.
    """
    num = 0
    while True:
        now = time.time()
        # A list, so that `note_room` is called for each run.
        if any([run.note_room(now) for run in runner.runs()]):
            runner.news.set()
        if report is not None and num % _DISKS_EVERY == 0:
            folder = paths.data_dir()
            # In a thread, as the drive may not answer.
            room = await asyncio.to_thread(room_of, folder)
            if room is not None:
                reading = DiskReading(
                    folder=str(folder),
                    total_bytes=room.total_bytes,
                    free_bytes=room.free_bytes,
                    free_files=room.free_files,
                    is_full=room.is_short(),
                )
                report(DisksSeen(at=time.time(), disks=[reading]))
        num += 1
        await asyncio.sleep(_WAITS_S)
