"""Keeps what is stored within bounds, in small steps: old states, unused space, blobs, code.

    each 10 s              measured numbers are packed, and the old ones rolled up
    each minute            states in the feed that were followed by others (store.py) are deleted
                           space that the database does not use is given back to the file system
    at the start, each     blobs and unpacked modules that no experiment refers to are removed,
      hour, and after a    and checkpoints that a killed rank did not complete
      deletion

A notebook stores the blobs of an experiment before it submits it, and takes those that are there
already; it sets their time when it does. So only what is older than an hour is removed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from det_jupyter.config.storages import location_of
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import Capsule
from det_jupyter.contract.trial.captured import blobs_of, code_key, private_blobs_of
from det_jupyter.errors import CheckpointError
from det_jupyter.master.service.service import Service
from det_jupyter.storage import open_storage

logger = logging.getLogger(__name__)

_PERIOD_S = 60.0
_SWEEP_S = 3600.0
_FOLLOWED_S = 60.0  # the age at which states that were followed by others are deleted
_PACKING_S = 10.0
_GRACE_S = 3600.0  # for what was stored and is not referred to yet
_DOOMED = ".doomed-"


async def clean_up(service: Service) -> None:
    """Clean up once a minute, until cancelled."""
    swept_at, swept = -_SWEEP_S, -1
    tidied_at = 0.0
    while True:
        try:
            now = time.time()
            await _clean_up_database(service, since=tidied_at, now=now)
            tidied_at = now
            known = len(service.machine.state.experiments)
            if known < swept or time.monotonic() - swept_at > _SWEEP_S:
                swept_at, swept = time.monotonic(), known
                experiments = list(service.machine.state.experiments.values())
                capsules = [experiment.capsule for experiment in experiments]
                await asyncio.to_thread(sweep, paths.data_dir(), capsules, now)
                locations = {location_of(e.config["checkpoint_storage"]) for e in experiments}
                await asyncio.to_thread(remove_leftovers, locations, paths.data_dir())
            swept = max(swept, known)
        except Exception:  # a full disk, say: the next minute comes
            logger.exception("tidying up failed")
        await asyncio.sleep(_PERIOD_S)


async def keep_series(service: Service) -> None:
    """Pack what has become enough, until cancelled."""
    while True:
        await asyncio.sleep(_PACKING_S)
        try:
            if service.store.series.has_rows():
                await pack_series(service, time.time())
        except Exception:  # a full disk, say: the next look comes
            logger.exception("measured numbers could not be packed")


async def pack_series(service: Service, now: float) -> None:
    """Pack what is enough, or has been silent for long.

    Numbers are read and computed in another thread; the loop has small transactions.
    """
    # numpy is imported there, once there is something to pack: nothing waits for it.
    await asyncio.to_thread(import_module, "det_jupyter.master.service.series_packing")
    from det_jupyter.master.service.series_packing import find_due, pack, roll_up

    path, series = service.store.path, service.store.series
    for key in await asyncio.to_thread(find_due, path, now):
        packed = await asyncio.to_thread(pack, path, key)
        series.replace_rows(packed)
        for chunk in await asyncio.to_thread(roll_up, path, [c.key for c in packed.chunks]):
            series.add_rolled(chunk)
            await asyncio.sleep(0)  # others are served in between


async def _clean_up_database(service: Service, *, since: float, now: float) -> None:
    for experiment in list(service.machine.state.experiments.values()):
        ended_at = experiment.ended_at
        # Else nothing of it can have become old since then.
        if ended_at is None or ended_at > since - 2 * _FOLLOWED_S:
            for _ in service.store.feed.compact(experiment.id, now - _FOLLOWED_S):
                await asyncio.sleep(0)  # others are served in between
    service.published.drop_deleted(service.machine.state)
    while service.store.give_back():
        await asyncio.sleep(0)


def sweep(data_dir: Path, capsules: Iterable[Capsule], now: float) -> None:
    """Remove the blobs, and the unpacked modules, that no experiment refers to."""
    kept = list(capsules)
    blobs = {blob for each in kept for blob in blobs_of(each) | private_blobs_of(each)}
    codes = {code_key(capsule) for capsule in kept}
    removed = [path for path in data_dir.glob("blobs/??/*") if path.name not in blobs]
    removed += [path for path in data_dir.glob("code/*") if path.name not in codes]
    count = sum(_remove_if_old(path, now - _GRACE_S) for path in removed)
    if count:
        logger.info("removed %d blobs and folders of code that nothing refers to", count)


def remove_leftovers(locations: Iterable[str | None], data_dir: Path) -> None:
    """Remove what killed ranks have left of checkpoints, in these storages and our own."""
    for location in {None, *locations}:
        with suppress(CheckpointError, OSError):  # it is on a drive that is gone, say
            open_storage(location, data_dir).remove_leftovers()


def _remove_if_old(path: Path, before: float) -> bool:
    """Remove a file or folder unless its time has been set meanwhile; return whether."""
    with suppress(FileNotFoundError):
        if path.stat().st_mtime > before:
            return False
        doomed = path if path.name.startswith(".") else path.with_name(_DOOMED + path.name)
        path.rename(doomed)  # a notebook that stores it now finds none, and stores it anew
        if doomed.stat().st_mtime > before:
            doomed.rename(path)  # it was stored again just before
            return False
        if doomed.is_dir() and not doomed.is_symlink():
            shutil.rmtree(doomed)
        else:
            os.unlink(doomed)
        return True
    return False
