"""Keeps stored data within bounds, in small steps: free space, series, blobs, code, leftovers.

    every 10 s             measured series are packed, and old ones rolled up
    every minute           pages that the database does not use are returned to the file system;
                           temporary experiments whose clients were killed are deleted
    at the start, every    blobs and unpacked modules that no experiment refers to, incomplete
      hour, and after a    checkpoints of killed ranks, folders of runs by hand whose followers
      deletion             were killed, old alerts, and addresses without a use are deleted

A client stores the blobs of an experiment before it submits it; if a blob exists already, it sets
the file's modification time. So only files that are older than an hour are deleted.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
from collections.abc import Iterable, Set
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import Capsule, Delete
from det_jupyter.contract.run.unmanaged import unmanaged_runs
from det_jupyter.contract.trial.captured import blobs_of, code_key, private_blobs_of
from det_jupyter.errors import CheckpointError, DetError
from det_jupyter.master.machine.model.lifecycle import OVER
from det_jupyter.master.machine.model.state import Experiment
from det_jupyter.master.service.service import Service
from det_jupyter.storage import open_storage

logger = logging.getLogger(__name__)

_PERIOD_S = 60.0
_SWEEP_S = 3600.0
_PACKING_S = 10.0
_GRACE_S = 3600.0  # age that files need: they are stored before an experiment refers to them
_UNSENT_S = 7 * 86_400.0  # how long what a run that is over had not sent is kept
_DELETING = ".doomed-"  # prefix of the names of files that are being deleted


async def clean_up(service: Service) -> None:
    """Run the clean-up once a minute, until cancelled."""
    swept_at, num_swept = -_SWEEP_S, -1  # num_swept: number of experiments at the last sweep.
    while True:
        try:
            now = time.time()
            while service.store.give_back():
                await asyncio.sleep(0)  # lets requests be served in between
            for number in find_abandoned(service.machine.state.experiments.values(), now):
                with suppress(DetError):  # what follows may free space that this needs
                    service.apply(Delete(experiment_id=number))
            num = len(service.machine.state.experiments)
            if num < num_swept or time.monotonic() - swept_at > _SWEEP_S:
                swept_at, num_swept = time.monotonic(), num
                experiments = list(service.machine.state.experiments.values())
                capsules = [experiment.capsule for experiment in experiments]
                await asyncio.to_thread(sweep, paths.data_dir(), capsules, now)
                locations = {e.location for e in experiments}
                await asyncio.to_thread(remove_leftovers, locations, paths.data_dir())
                over = {key for each in experiments for key in each.run_keys}
                over -= {e.run_keys[-1] for e in experiments if e.run_keys and e.ended_at is None}
                await asyncio.to_thread(remove_dead_runs, paths.data_dir(), over, now)
                _sweep_alerts(service, now)
            num_swept = max(num_swept, num)
        except Exception:  # a full disk, for example; it is tried again in a minute
            logger.exception("tidying up failed")
        await asyncio.sleep(_PERIOD_S)


async def keep_series(service: Service) -> None:
    """Pack measured series every few seconds, until cancelled."""
    while True:
        await asyncio.sleep(_PACKING_S)
        try:
            if service.store.series.has_rows():
                await pack_series(service, time.time())
        except Exception:  # a full disk, for example; it is tried again
            logger.exception("measured numbers could not be packed")


async def pack_series(service: Service, now: float) -> None:
    """Pack series that have enough rows for a chunk, or have had no new rows for long.

    Rows are read and packed in a thread; the event loop only writes, in small transactions.
    """
    # In a thread, as the module imports numpy, which takes long.
    await asyncio.to_thread(import_module, "det_jupyter.master.service.storing.series_packing")
    from det_jupyter.master.service.storing.series_packing import find_due, pack, roll_up

    path, series = service.store.path, service.store.series
    for key in await asyncio.to_thread(find_due, path, now):
        packed = await asyncio.to_thread(pack, path, key)
        series.replace_rows(packed)
        for chunk in await asyncio.to_thread(roll_up, path, [c.key for c in packed.chunks]):
            series.add_rolled(chunk)
            await asyncio.sleep(0)  # lets requests be served in between


def _sweep_alerts(service: Service, now: float) -> None:
    """Delete old alerts, and addresses that no experiment, template, alert or tracker uses."""
    store, state = service.store, service.machine.state
    store.alerts.prune()
    configs = [experiment.config for experiment in state.experiments.values()]
    configs += [template.config for template in store.templates()]
    store.addresses.sweep(configs, now)


def sweep(data_dir: Path, capsules: Iterable[Capsule], now: float) -> None:
    """Delete old blobs and unpacked modules that none of these capsules refers to."""
    used = list(capsules)
    blobs = {blob for each in used for blob in blobs_of(each) | private_blobs_of(each)}
    codes = {code_key(capsule) for capsule in used}
    removed = [path for path in data_dir.glob("blobs/??/*") if path.name not in blobs]
    removed += [path for path in data_dir.glob("code/*") if path.name not in codes]
    count = sum(_remove_if_old(path, now - _GRACE_S) for path in removed)
    if count:
        logger.info("removed %d blobs and folders of code that nothing refers to", count)


def remove_leftovers(locations: Iterable[str | None], data_dir: Path) -> None:
    """Delete incomplete checkpoints of killed ranks, in these storages and det_jupyter's own."""
    for location in {None, *locations}:
        with suppress(CheckpointError, OSError):  # its drive may not be mounted
            open_storage(location, data_dir).remove_leftovers()


def find_abandoned(experiments: Iterable[Experiment], now: float) -> list[int]:
    """Return the temporary experiments that have ended long ago: their clients were killed."""
    return [
        each.id
        for each in experiments
        if each.is_temporary and each.state in OVER and (each.ended_at or now) < now - _GRACE_S
    ]


def remove_dead_runs(data_dir: Path, over: Set[str], now: float) -> None:
    """Delete the folders of runs by hand that are over, if nothing was written for a week.

    In general the follower deletes them; one that was killed has left what it had not sent. A run
    that no experiment has can still be taken in: its master may be another one.

    Args:
        data_dir: The master's data folder.
        over: The keys of the runs that are over.
    """
    for folder in unmanaged_runs(data_dir).glob("*"):
        with suppress(FileNotFoundError):  # its follower has just deleted it, or a file of it
            files = (folder, *folder.rglob("*"))
            written_at = max(file.lstat().st_mtime for file in files)
            if folder.name in over and written_at < now - _UNSENT_S:
                shutil.rmtree(folder, ignore_errors=True)


def _remove_if_old(path: Path, before: float) -> bool:
    """Delete a file or folder not modified after `before`; return whether it was deleted."""
    with suppress(FileNotFoundError):
        if path.stat().st_mtime > before:
            return False
        renamed = path if path.name.startswith(".") else path.with_name(_DELETING + path.name)
        # A client that stores the file now does not find it, and writes a new one.
        path.rename(renamed)
        if renamed.stat().st_mtime > before:
            renamed.rename(path)  # a client has renewed its modification time just before
            return False
        if renamed.is_dir() and not renamed.is_symlink():
            shutil.rmtree(renamed)
        else:
            os.unlink(renamed)
        return True
    return False
