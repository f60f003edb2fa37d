"""Finds and deletes the checkpoints that are not kept, and what crashes have left in storages.

    policy        a checkpoint that the policy of its experiment does not keep, for example because
                  its version of a model was deleted
    draft         folders that a killed process has not finished: it has them locked while it lives
    upload        objects in a bucket without a commit, and unfinished uploads in parts
    unrecorded    whole checkpoints in det_jupyter's own folder that no record names. In another
                  folder or a bucket they may be another master's

A running upload or run cannot be told from a killed one by its files. So what was written in the
last day stays, and what was written since any present run began, as its agent may still need it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from det_jupyter.contract.messages import CollectedGarbage, Garbage, SetRetention, State
from det_jupyter.contract.values.bucket_urls import is_in_bucket
from det_jupyter.errors import CheckpointError, Conflict
from det_jupyter.master.machine.rules.retention import find_unneeded
from det_jupyter.master.service.service import Service
from det_jupyter.storage import CheckpointStorage, open_storage, path_of, read_metadata
from det_jupyter.storage.buckets.storage import copies_dir
from det_jupyter.storage.directory import DirectoryStorage

_SETTLED_S = 86_400.0  # age of files that no running upload still needs
_POLICY = ("save_experiment_best", "save_trial_best", "save_trial_latest")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What the master's state says of the files in storages.

    Args:
        locations: The storages that experiments have used; None: det_jupyter's own.
        recorded: The uuids of all checkpoints.
        over: The experiments that are over, or were deleted.
        before: When files that are not in use were written at the latest.
    """

    locations: list[str | None]
    recorded: frozenset[str]
    over: frozenset[int]
    before: float


async def collect(service: Service, data_dir: Path, *, dry_run: bool) -> CollectedGarbage:
    """Delete what is not kept, and return it; with `dry_run`, only return it."""
    found = list(_unneeded(service))
    if not dry_run:
        for number in {each.experiment_id for each in found if each.experiment_id is not None}:
            _apply_policy(service, number)
    known = _known_of(service, time.time())
    left = await asyncio.to_thread(_sweep, known, data_dir, dry_run=dry_run)
    return CollectedGarbage(found=found + left.found, problems=left.problems)


def _unneeded(service: Service) -> Iterator[Garbage]:
    """Yield the checkpoints that policies do not keep, of experiments that have ended here."""
    state, indexes = service.machine.state, service.machine.indexes
    for experiment in state.experiments.values():
        is_over = experiment.state in (State.COMPLETED, State.CANCELED, State.ERROR)
        if not is_over or experiment.source:
            continue
        storage = experiment.settings.checkpoint_storage
        for uuid in find_unneeded(state, indexes, experiment, storage):
            one = state.checkpoints[uuid]
            yield Garbage(
                kind="policy",
                path=one.path,
                experiment_id=experiment.id,
                num_bytes=one.size_bytes,
                changed_at=one.created_at,
            )


def _apply_policy(service: Service, experiment_id: int) -> None:
    storage = service.machine.state.experiment(experiment_id).settings.checkpoint_storage
    numbers = {name: getattr(storage, name) for name in _POLICY}
    with suppress(Conflict):  # it was changed meanwhile
        service.apply(SetRetention(experiment_id=experiment_id, **numbers))


def _known_of(service: Service, now: float) -> _Known:
    state = service.machine.state
    locations = {experiment.location for experiment in state.experiments.values()}
    locations |= {one.location for one in state.checkpoints.values() if one.is_placed}
    open_ids = {each.id for each in state.experiments.values() if not each.state.is_terminal}
    runs = (trial.allocation for trial in state.trials.values())
    begun = [run.started_at or now for run in runs if run is not None]
    return _Known(
        locations=[None, *sorted(location for location in locations if location is not None)],
        recorded=frozenset(state.checkpoints),
        over=frozenset(range(1, state.last_experiment_id + 1)) - open_ids,
        before=min([now - _SETTLED_S, *begun]),
    )


def _sweep(known: _Known, data_dir: Path, *, dry_run: bool) -> CollectedGarbage:
    """Remove what crashes have left. Blocks: call it in a thread."""
    result = CollectedGarbage(found=[])
    own = open_storage(None, data_dir)
    storages = [open_storage(location, data_dir) for location in known.locations]
    for storage in [*storages, DirectoryStorage(copies_dir(data_dir))]:
        try:
            for left in storage.sweep(known.before, dry_run=dry_run):
                result.found.append(
                    Garbage(
                        kind="upload" if is_in_bucket(storage.location) else "draft",
                        path=path_of(storage, left.name),
                        num_bytes=left.num_bytes,
                        changed_at=left.changed_at,
                    )
                )
        except (CheckpointError, OSError) as error:
            result.problems.append(str(error))
    for each in _unrecorded(own, known):
        try:
            if not dry_run:
                own.delete(Path(each.path).name)
            result.found.append(each)
        except CheckpointError as error:
            result.problems.append(str(error))
    return result


def _unrecorded(own: CheckpointStorage, known: _Known) -> Iterator[Garbage]:
    """Yield the whole checkpoints in det_jupyter's own folder of which there is no record."""
    for each in own.scan():
        if each.uuid in known.recorded or each.problem or each.stored_at >= known.before:
            continue
        with own.reading(each.uuid) as folder:
            number = read_metadata(folder).get("experiment_id")
        if number in known.over:
            yield Garbage(
                kind="unrecorded",
                path=path_of(own, each.uuid),
                experiment_id=number,
                num_bytes=each.num_bytes,
                changed_at=each.stored_at,
            )
