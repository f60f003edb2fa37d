"""Carries out commands that delete files and rows; the outcomes are events.

Files are deleted in a thread, one command after the other. A checkpoint is deleted only if its
recorded path is the path of its uuid in the experiment's storage, and if a checkpoint with this
uuid is there; anything else is kept, and reported. Commands are idempotent.

A rank that is killed just after it has completed a checkpoint has no time to record it, so the
master does not know its uuid. When the experiment is deleted, such checkpoints are found by their
metadata, but only in det_jupyter's own folder: another folder may have checkpoints of other
masters, whose experiments have the same numbers. In its own folder a database that is lost may
have had the same numbers, so they must have been written while the trial was trained.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.disk_space import is_no_room
from det_jupyter.contract.host.rundir import runs_root
from det_jupyter.contract.messages import State
from det_jupyter.errors import BucketProblem, CheckpointError
from det_jupyter.master.background.spans import Span, is_written_in, spans_of
from det_jupyter.master.machine.model.commands import DeleteCheckpoints, DeleteExperiment, Deletion
from det_jupyter.master.machine.model.events import CheckpointsDeleted, ExperimentDeleted
from det_jupyter.master.machine.rules.retention import pending_deletions
from det_jupyter.master.service.service import Service
from det_jupyter.storage import CheckpointStorage, open_storage, path_of
from det_jupyter.storage.contract import METADATA_FILE, is_name, read_metadata
from det_jupyter.storage.copies import find_copy_problem
from det_jupyter.storage.directory import remove_tree
from det_jupyter.storage.kinds import find_checkpoint

logger = logging.getLogger(__name__)

_PROBLEMS_SHOWN = 3
_RETRY_S = 1.0
_AWAY_S = 60.0  # until a bucket that does not answer is asked again


@dataclass(slots=True)
class Removed:
    """Results of a deletion: what was deleted, and what could not be deleted."""

    uuids: list[str] = field(default_factory=list)  # checkpoints that were deleted
    # By uuid: remaining bytes of those deleted in part.
    left_bytes: dict[str, int] = field(default_factory=dict)
    # A line for each thing that remains, with the reason.
    problems: list[str] = field(default_factory=list)
    is_away: bool = False  # a bucket does not answer
    is_needed: bool = False  # a copy is not found whole: what was to be deleted must be kept


async def delete(service: Service) -> None:
    """Carry out deletions until cancelled, beginning with those left by a former master."""
    for command in pending_deletions(service.machine.state):
        service.deletions.put_nowait(command)
    while True:
        command = await service.deletions.get()
        try:
            await _carry_out(service, command)
        except Exception as error:  # a full disk, for example; it is tried again
            if is_no_room(error):
                service.reserve.give_back()
            logger.exception("experiment=%d: a deletion failed", command.experiment_id)
            await asyncio.sleep(_RETRY_S)
            service.deletions.put_nowait(command)


async def _carry_out(service: Service, command: Deletion) -> None:
    experiment_id = command.experiment_id
    if isinstance(command, DeleteExperiment):
        experiment = service.machine.state.experiments.get(experiment_id)
        if experiment is None or experiment.state is not State.DELETING:
            return  # the command is repeated, or its deletion has failed
    state = service.machine.state
    if isinstance(command, DeleteExperiment):
        spans = spans_of(state, [experiment_id])
    else:  # of what was deleted since, no copy is needed
        spans, stored = {}, state.checkpoints
        copies = {uuid: path for uuid, path in command.copies.items()
                  if uuid in stored and stored[uuid].state != "DELETED"}  # fmt: skip
        command = replace(command, copies=copies)
        if command.is_former:  # what was forgotten since stays
            left = {uuid: path for uuid, path in command.paths.items()
                    if uuid not in stored or stored[uuid].former == path}  # fmt: skip
            command = replace(command, paths=left)
    recorded = frozenset(state.checkpoints)
    removed = await asyncio.to_thread(remove_files, command, paths.data_dir(), recorded, spans)
    for problem in removed.problems:
        logger.error("experiment=%d: %s", experiment_id, problem)
    logger.info(
        "experiment=%d: %d checkpoints deleted, %d in part",
        experiment_id, len(removed.uuids), len(removed.left_bytes),
    )  # fmt: skip
    if isinstance(command, DeleteCheckpoints) and command.is_former:
        gone, former = [], removed.uuids
    else:
        gone, former = removed.uuids, []
    if removed.uuids or removed.left_bytes:
        service.take(
            CheckpointsDeleted(
                experiment_id=experiment_id,
                uuids=gone,
                left_bytes=removed.left_bytes,
                former=former,
            )
        )
    if isinstance(command, DeleteCheckpoints):
        if removed.is_away:
            again = partial(service.deletions.put_nowait, command)
            asyncio.get_running_loop().call_later(_AWAY_S, again)
        return
    if not removed.problems:
        for _ in service.store.delete_experiment(experiment_id, command.trial_ids):
            await asyncio.sleep(0)  # lets requests be served in between
    error = "; ".join(removed.problems[:_PROBLEMS_SHOWN])
    if (num_more := len(removed.problems) - _PROBLEMS_SHOWN) > 0:
        error += f"; and {num_more} more, which master.log names"
    service.take(ExperimentDeleted(experiment_id=experiment_id, error=error))


def remove_files(
    command: Deletion,
    data_dir: Path,
    recorded: Collection[str] = (),
    spans: Mapping[tuple[int, int], Span] = MappingProxyType({}),
) -> Removed:
    """Delete the files that a command names.

    Args:
        recorded: The uuids of all checkpoints in the database.
        spans: When the files of its trials were written, to find the experiment's unrecorded ones.
    """
    removed = Removed()
    globs = command.globs if isinstance(command, DeleteCheckpoints) else ()
    copies = command.copies if isinstance(command, DeleteCheckpoints) else {}
    elsewhere = command.elsewhere if isinstance(command, DeleteExperiment) else {}
    open_cached = cache(partial(open_storage, data_dir=data_dir))
    try:
        for uuid, path in command.paths.items():
            if removed.is_away:  # each would take as long to find that out
                break
            if problem := _find_copy_problem(path, copies.get(uuid), removed):
                removed.problems.append(f"left {path} alone: {problem}")
            else:
                storage = open_cached(elsewhere.get(uuid, command.location))
                _remove_checkpoint(storage, uuid, path, globs, removed)
        if isinstance(command, DeleteExperiment):
            # unfinished files of ranks killed while saving
            open_cached(command.location).remove_leftovers()
            if command.location is None and spans:
                for uuid in _unrecorded(data_dir / "checkpoints", recorded, spans):
                    open_cached(None).delete(uuid)
    except CheckpointError as error:
        removed.problems.append(str(error))
    if isinstance(command, DeleteExperiment):
        for folder in _folders_of(command.experiment_id, data_dir):
            if folder.is_dir() and not folder.is_symlink():
                try:
                    remove_tree(folder)
                except OSError as error:
                    problem = f"cannot remove the folder {folder}: {error.strerror}"
                    removed.problems.append(problem)
    return removed


def _unrecorded(
    folder: Path, recorded: Collection[str], spans: Mapping[tuple[int, int], Span]
) -> Iterator[str]:
    """Yield the checkpoints of an experiment's trials in a folder that were not recorded."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name in recorded or not is_name(path.name) or path.is_symlink():
            continue
        with suppress(CheckpointError, OSError):  # it is not a checkpoint
            metadata: object = read_metadata(path)
            if (
                isinstance(metadata, dict)
                and metadata.get("uuid") == path.name  # not a copy that a user has made
                and is_written_in(spans, metadata, (path / METADATA_FILE).stat().st_mtime)
            ):
                yield path.name


def _find_copy_problem(path: str, copy: str | None, removed: Removed) -> str:
    """Return why a checkpoint that was moved to `copy` is not deleted; "": it is."""
    if copy is None:
        return ""
    try:
        problem = find_copy_problem(path, copy)
        removed.is_needed |= bool(problem)
    except (CheckpointError, OSError) as error:
        removed.is_away |= isinstance(error, BucketProblem) and error.kind == "away"
        removed.is_needed |= not _is_stored(copy)
        problem = str(error)
    return problem


def _is_stored(path: str) -> bool:
    """Return whether files of a checkpoint are seen there."""
    with suppress(CheckpointError, OSError):
        storage, uuid = find_checkpoint(path)
        return bool(storage.files(uuid))
    return False


def _remove_checkpoint(
    storage: CheckpointStorage, uuid: str, path: str, globs: Sequence[str], removed: Removed
) -> None:
    if not is_name(uuid) or path != path_of(storage, uuid):
        removed.problems.append(
            f"left {path} alone: it is not checkpoint {uuid!r} in the storage {storage.location}"
        )
        return
    try:
        left_bytes = storage.delete(uuid, globs)
    except CheckpointError as error:
        removed.is_away |= isinstance(error, BucketProblem) and error.kind == "away"
        # The same for all checkpoints if the storage cannot be reached.
        if str(error) not in removed.problems:
            removed.problems.append(str(error))
        return
    if left_bytes:
        removed.left_bytes[uuid] = left_bytes
    else:
        removed.uuids.append(uuid)


def _folders_of(experiment_id: int, data_dir: Path) -> Iterator[Path]:
    root = runs_root(data_dir)
    if root.is_dir():
        yield from sorted(root.glob(f"{experiment_id}.*.*"))
    yield data_dir / "tensorboard" / str(experiment_id)
    yield data_dir / "traces" / str(experiment_id)
