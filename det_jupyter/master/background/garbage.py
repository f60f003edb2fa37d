"""Finds and deletes the checkpoints that are not kept, and what crashes have left in storages.

    policy        a checkpoint that the policy of its experiment does not keep, for example because
                  its version of a model was deleted
    draft         folders that a killed process has not finished: it has them locked while it lives
    upload        objects in a bucket without a commit, and unfinished uploads in parts
    moved         a checkpoint where it was before it was moved, as its drive was away. If it still
                  cannot be deleted, it is forgotten, as the drive may never come back; but not
                  while its copy is not found whole
    unrecorded    whole checkpoints in det_jupyter's own folder that no record names, of a trial
                  that is over, written while it was not. In another folder or a bucket they may
                  be another master's; of another time they are those of a database that is lost

A running upload or run cannot be told from a killed one by its files. So what was written in the
last day stays, and what was written since any present run began, as its agent may still need it.
Only what a list has shown is deleted, and only if it is still found.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from det_jupyter.contract.messages import (
    CheckpointView,
    CollectedGarbage,
    DropCheckpoints,
    Garbage,
    State,
)
from det_jupyter.contract.values.bucket_urls import is_in_bucket
from det_jupyter.errors import CheckpointError, ConfigError, Conflict
from det_jupyter.master.background.deleting import remove_files
from det_jupyter.master.background.spans import Span, is_written_in, spans_of
from det_jupyter.master.machine.model.events import CheckpointsDeleted
from det_jupyter.master.machine.model.lifecycle import OVER
from det_jupyter.master.machine.rules.retention import find_unneeded, former_deletions
from det_jupyter.master.service.service import Service
from det_jupyter.storage import CheckpointStorage, open_storage, path_of, read_metadata
from det_jupyter.storage.buckets.storage import copies_dir
from det_jupyter.storage.contract import CheckpointFiles
from det_jupyter.storage.directory import DirectoryStorage

_SETTLED_S = 86_400.0  # age of files that no running upload still needs


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What the master's state says of the files in storages.

    Args:
        locations: The storages that experiments have used; None: det_jupyter's own.
        is_recorded: Returns whether a checkpoint is known now, by its uuid.
        spans: When the files of trials that are over were written, by experiment and trial.
        age_s: How long ago files that are not in use were written at least.
    """

    locations: list[str | None]
    is_recorded: Callable[[str], bool]
    spans: Mapping[tuple[int, int], Span]
    age_s: float


async def collect(service: Service, data_dir: Path, paths: Collection[str]) -> CollectedGarbage:
    """Return what is not kept; if `paths` are given, delete it there, and return only that."""
    result, doomed = CollectedGarbage(found=[]), frozenset(paths)
    for each, uuid in _unneeded(service, result.problems):
        try:
            if each.path in doomed:
                service.apply(DropCheckpoints(uuids=[uuid]))
        except Conflict as error:  # it was changed meanwhile
            result.problems.append(str(error))
        else:
            result.found.append(each)
        await asyncio.sleep(0)  # lets requests be served in between
    for each, one in _moved(service):
        if one.former != each.path:  # it was deleted meanwhile
            continue
        problems = await _clear_former(service, data_dir, one) if each.path in doomed else []
        result.problems += problems
        result.found += [] if problems else [each]
    known = _known_of(service, time.time())
    await asyncio.to_thread(_sweep, known, data_dir, doomed, result)
    if doomed:
        result.found = [each for each in result.found if each.path in doomed]
    return result


def _unneeded(service: Service, problems: list[str]) -> list[tuple[Garbage, str]]:
    """Return the checkpoints that policies do not keep, of experiments that have ended here."""
    state, indexes = service.machine.state, service.machine.indexes
    found = []
    for experiment in state.experiments.values():
        if experiment.state in (State.COMPLETED, State.CANCELED, State.ERROR):
            try:
                storage = experiment.settings.checkpoint_storage
            except ConfigError as error:  # of another version
                problems.append(f"experiment {experiment.id}: {error}")
                continue
            uuids = find_unneeded(state, indexes, experiment, storage)
            found += [state.checkpoints[uuid] for uuid in uuids]
    return [(_stored("policy", one.path, one), one.uuid) for one in found]


def _stored(kind: Literal["policy", "moved"], path: str, one: CheckpointView) -> Garbage:
    return Garbage(
        kind=kind,
        path=path,
        experiment_id=one.experiment_id,
        num_bytes=one.size_bytes,
        changed_at=one.created_at,
    )


def _moved(service: Service) -> list[tuple[Garbage, CheckpointView]]:
    """Return the checkpoints that are still to be deleted where they were moved from."""
    return [
        (_stored("moved", one.former, one), one)
        for one in service.machine.state.checkpoints.values()
        if one.former
    ]


async def _clear_former(service: Service, data_dir: Path, one: CheckpointView) -> list[str]:
    """Delete a checkpoint where it was moved from, or forget it; return why it is not deleted."""
    (command,) = former_deletions(service.machine.state, [one])
    path, removed = one.former, await asyncio.to_thread(remove_files, command, data_dir)
    if removed.is_needed and one.state == "COMPLETED":  # not if files of the copy were deleted
        return [f"{problem}; it is kept until its copy is whole" for problem in removed.problems]
    service.take(CheckpointsDeleted(experiment_id=one.experiment_id, uuids=[], former=[one.uuid]))
    return [
        f"{problem}; {path} is forgotten: delete it by hand if it is there"
        for problem in removed.problems
    ]


def _known_of(service: Service, now: float) -> _Known:
    state = service.machine.state
    locations = {experiment.location for experiment in state.experiments.values()}
    locations |= {
        one.location for one in state.checkpoints.values() if one.is_placed and not one.is_foreign
    }
    over = [i for i, each in state.experiments.items() if each.state in OVER and not each.source]
    runs = (trial.allocation for trial in state.trials.values())
    begun = [run.started_at or now for run in runs if run is not None]
    return _Known(
        locations=[None, *sorted(location for location in locations if location is not None)],
        is_recorded=lambda uuid: uuid in service.machine.state.checkpoints,
        spans=spans_of(state, over),
        age_s=max([_SETTLED_S, *(now - at for at in begun)]),
    )


def _sweep(
    known: _Known, data_dir: Path, doomed: Collection[str], result: CollectedGarbage
) -> None:
    """Find what crashes have left, and remove it at these paths. Blocks: call it in a thread."""
    own = open_storage(None, data_dir)
    storages = [open_storage(location, data_dir) for location in known.locations]
    for storage in [*storages, DirectoryStorage(copies_dir(data_dir), is_own=True)]:
        root = path_of(storage, "")
        names = [path.removeprefix(root) for path in doomed if path.startswith(root)]
        try:
            for left in storage.sweep(known.age_s, names):
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
    for each in own.scan():
        try:
            unrecorded = None if each.problem else _as_unrecorded(own, each, known)
            if unrecorded is not None:
                if unrecorded.path in doomed and not known.is_recorded(each.uuid):
                    own.delete(each.uuid)
                result.found.append(unrecorded)
        except (CheckpointError, OSError) as error:  # it may be deleted just now
            result.problems.append(str(error))


def _as_unrecorded(
    own: CheckpointStorage, files: CheckpointFiles, known: _Known
) -> Garbage | None:
    """Return a whole checkpoint in det_jupyter's own folder, if there is no record of it."""
    if known.is_recorded(files.uuid):
        return None
    with own.reading(files.uuid) as folder:
        metadata, put_at = read_metadata(folder), folder.stat().st_ctime
    is_old = max(files.stored_at, put_at) < time.time() - known.age_s
    if not is_old or not is_written_in(known.spans, metadata, files.stored_at):
        return None
    return Garbage(
        kind="unrecorded",
        path=path_of(own, files.uuid),
        experiment_id=metadata["experiment_id"],
        num_bytes=files.num_bytes,
        changed_at=files.stored_at,
    )
