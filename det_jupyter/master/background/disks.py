"""Watches the disks: warnings, the reserve, and trials that wait for free space.

every 2 s      the free space of the master's folders is read, each in a thread, as a drive may
               hang; the reserve is removed or made again; trials without slots that wait for
               space are queued again when there is some
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import takewhile

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.disk_space import Room, is_enough_room, room_of
from det_jupyter.contract.host.tasks import BlockingCalls
from det_jupyter.contract.messages import RoomForecast, RoomWait
from det_jupyter.master.machine.model.events import RoomFound
from det_jupyter.master.machine.model.state import Experiment
from det_jupyter.master.machine.rules.full_disks import waits_without_slots
from det_jupyter.master.service.disks import WINDOW_S, disks_of, recent_writes
from det_jupyter.master.service.service import Service

logger = logging.getLogger(__name__)

_PERIOD_S = 2.0
_PATIENCE_S = 1.0  # time for drives to answer; others do not wait longer for them


class DiskWatch:
    """Watches the disks that a master's computer writes to."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._rooms: BlockingCalls[str, Room | None] = BlockingCalls()
        self._known: dict[str, Room | None] = {}  # by folder: the last answer of its drive
        self._waits: BlockingCalls[int, bool] = BlockingCalls()
        self._was_low: set[str] = set()

    async def run(self) -> None:
        """Watch the disks until cancelled."""
        while True:
            try:
                await self._look(time.time())
                self._was_low = _log_changes(self._service, self._was_low)
                self._service.store_facts()
            except Exception:  # disks are read again in a moment
                logger.exception("the disks could not be read")
            await asyncio.sleep(_PERIOD_S)

    async def _look(self, now: float) -> None:
        """Read the disks once, and act on the result."""
        service = self._service
        folders = folders_of(service)
        calls = {folder: partial(room_of, folder) for folder in folders}
        known = self._known | await self._rooms.results(calls, _PATIENCE_S)
        self._known = {folder: known[folder] for folder in folders if folder in known}
        service.disks.add_own(now, disks_of(self._known))
        service.disks.set_writes(_writes(service, folders, now))
        await asyncio.to_thread(service.reserve.keep)
        checks: dict[int, Callable[[], bool]] = {}
        for experiment in service.machine.state.unfinished_experiments():
            for trial in service.machine.indexes.unfinished_trials(experiment.id):
                if waits_without_slots(trial) and trial.room and now >= trial.room.try_at:
                    checks[trial.id] = partial(_may_go_on, trial.room)
        for trial_id, may_go_on in (await self._waits.results(checks, _PATIENCE_S)).items():
            if may_go_on:
                service.take(RoomFound(trial_id=trial_id))


def folders_of(service: Service) -> dict[str, list[int]]:
    """Return the folders on this computer that are written to, with the experiments that write."""
    own = str(paths.data_dir())
    found: dict[str, list[int]] = {own: []}
    for experiment in service.machine.state.unfinished_experiments():
        location = experiment.location
        if location is None or location.startswith("/"):
            found.setdefault(location or own, []).append(experiment.id)
    return found


def forecast(service: Service, experiment: Experiment) -> RoomForecast:
    """Return whether an experiment's checkpoints will fit. Blocks: call it in a thread.

    Computed from the newest earlier experiment of the same name, or from the one that it was
    forked from. All checkpoints of an experiment stay until it ends; then its policy deletes some.
    """
    location = experiment.location
    folder = location or str(paths.data_dir() / "checkpoints")
    state = service.machine.state
    likes = [
        each.id
        for each in list(state.experiments.values())
        if each.id < experiment.id
        and (each.id == experiment.parent_id or each.name == experiment.name)
    ]
    sizes: dict[int, list[int]] = {}
    for one in list(state.checkpoints.values()):
        sizes.setdefault(one.experiment_id, []).append(one.size_bytes)
    like = max((number for number in likes if number in sizes), default=None)
    room = room_of(folder) if folder.startswith("/") else None
    if like is None or room is None or room.total_bytes == 0:
        return RoomForecast(folder=folder)
    return RoomForecast(
        folder=folder,
        free_bytes=max(0, room.free_bytes - room.floor_bytes),
        checkpoint_bytes=max(sizes[like]),
        num_checkpoints=len(sizes[like]),
        like=like,
    )


def _writes(
    service: Service, folders: Mapping[str, list[int]], now: float
) -> dict[str, dict[int, int]]:
    state = service.machine.state
    newest_first = reversed(state.checkpoints.values())
    recent = takewhile(lambda one: one.created_at > now - 2 * WINDOW_S, newest_first)
    by_experiment = recent_writes(recent, now)
    return {
        folder: {number: by_experiment[number] for number in numbers if number in by_experiment}
        for folder, numbers in folders.items()
    }


def _may_go_on(wait: RoomWait) -> bool:
    if wait.agent_id or not wait.folder.startswith("/"):
        return True  # if the disk is still full, its ranks wait at the write
    return is_enough_room(wait.folder, wait.needs_bytes)


def _log_changes(service: Service, before: set[str]) -> set[str]:
    """Log the disks that have become low or full; return all that are low or full."""
    found = {}
    for status in service.disks.warnings(time.time()):
        found[f"{status.agent_id} {status.folder} {status.state}"] = status
    for key in found.keys() - before:
        status = found[key]
        logger.warning(
            "%s%s is %s: %d bytes are free",
            f"agent {status.agent_id}: " if status.agent_id else "",
            status.folder,
            status.state,
            status.free_bytes,
        )
    return set(found)
