"""Removes files and rows, as the machine says; the outcome goes back to it as an event.

Files are removed in another thread, one command after the other. A checkpoint is removed only if
it is what the machine takes it for:

    nothing there                                    gone already
    <storage folder>/<uuid>, a folder of its own     removed
      with a metadata.json that names this uuid
    anything else                                    left alone, and reported

Of a command with patterns, only the files that these match; the folder goes with the last of them.
Links are never followed. Each command may be repeated: what was removed is gone already.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from det_jupyter.master.machine.core.commands import DeleteCheckpoints, DeleteExperiment, Deletion
from det_jupyter.master.machine.core.events import CheckpointsDeleted, ExperimentDeleted
from det_jupyter.master.machine.rules.retention import pending_deletions
from det_jupyter.master.service.service import Service
from det_jupyter.storage import LocalStorage
from det_jupyter.storage.globs import METADATA, files_of, matching
from det_jupyter.system import paths
from det_jupyter.system.rundir import runs_root
from det_jupyter.wire import State

logger = logging.getLogger(__name__)

_DOOMED = ".part-deleted-"  # the next checkpoint written there removes leftovers of this name
_PROBLEMS_SHOWN = 3
_PAUSE_S = 1.0


@dataclass(slots=True)
class Removed:
    """What was removed, and what could not be."""

    uuids: list[str] = field(default_factory=list)  # of the checkpoints that are gone
    left_bytes: dict[str, int] = field(default_factory=dict)  # of those that lost some files
    problems: list[str] = field(default_factory=list)  # what is left, and why, a line each


async def delete(service: Service) -> None:
    """Carry out deletions until cancelled; first those that an earlier master left open."""
    for command in pending_deletions(service.machine.state):
        service.deletions.put_nowait(command)
    while True:
        command = await service.deletions.get()
        try:
            await _carry_out(service, command)
        except Exception:  # a full disk, say: it is tried again
            logger.exception("experiment=%d: a deletion failed", command.experiment_id)
            await asyncio.sleep(_PAUSE_S)
            service.deletions.put_nowait(command)


async def _carry_out(service: Service, command: Deletion) -> None:
    experiment_id = command.experiment_id
    if isinstance(command, DeleteExperiment):
        experiment = service.machine.state.experiments.get(experiment_id)
        if experiment is None or experiment.state is not State.DELETING:
            return  # a command may come twice, or have failed meanwhile
    removed = await asyncio.to_thread(remove_files, command, paths.data_dir())
    for problem in removed.problems:
        logger.error("experiment=%d: %s", experiment_id, problem)
    logger.info(
        "experiment=%d: %d checkpoints deleted, %d in part",
        experiment_id, len(removed.uuids), len(removed.left_bytes),
    )  # fmt: skip
    if removed.uuids or removed.left_bytes:
        service.take(
            CheckpointsDeleted(
                experiment_id=experiment_id, uuids=removed.uuids, left_bytes=removed.left_bytes
            )
        )
    if isinstance(command, DeleteCheckpoints):
        return
    if not removed.problems:
        for _ in service.store.delete_experiment(experiment_id, command.trial_ids):
            await asyncio.sleep(0)  # others are served in between
    error = _in_short(removed.problems)
    service.take(ExperimentDeleted(experiment_id=experiment_id, error=error))


def _in_short(problems: list[str]) -> str:
    more = len(problems) - _PROBLEMS_SHOWN
    rest = [f"and {more} more, which master.log names"] if more > 0 else []
    return "; ".join([*problems[:_PROBLEMS_SHOWN], *rest])


def remove_files(command: Deletion, data_dir: Path) -> Removed:
    """Remove the files that a command names."""
    root = Path(command.folder) if command.folder else data_dir / "checkpoints"
    removed = Removed()
    if command.folder and command.paths and not root.is_dir():
        removed.problems.append(f"cannot find the storage folder {root}; is it mounted?")
    else:
        globs = command.globs if isinstance(command, DeleteCheckpoints) else ()
        _remove_checkpoints(root, command.paths, globs, removed)
    if isinstance(command, DeleteExperiment):
        LocalStorage(root).remove_leftovers()  # its last rank may have been killed as it saved
        for folder in _folders_of(command.experiment_id, data_dir):
            _remove_folder(folder, removed)
    return removed


def _remove_checkpoints(
    root: Path, places: Mapping[str, str], globs: Sequence[str], removed: Removed
) -> None:
    for uuid, path in places.items():
        try:
            problem = _find_problem(root, uuid, Path(path))
            if problem is not None:
                removed.problems.append(problem)
            elif globs and (left_bytes := _remove_some(Path(path), globs)):
                removed.left_bytes[uuid] = left_bytes
            else:
                _remove_checkpoint(root, uuid, Path(path))
                removed.uuids.append(uuid)
        except OSError as error:
            removed.problems.append(f"cannot remove checkpoint {path}: {error.strerror}")


def _find_problem(root: Path, uuid: str, path: Path) -> str | None:
    """Return why a folder is left alone, if it is no checkpoint."""
    if not uuid or uuid.startswith(".") or "/" in uuid or path != root / uuid:
        return f"left {path} alone: it is not checkpoint {uuid!r} in the storage folder {root}"
    if not _is_checkpoint(path, uuid) and os.path.lexists(path):
        return f"left {path} alone: it is not the folder of a checkpoint of this name"
    return None


def _remove_some(folder: Path, globs: Sequence[str]) -> int:
    """Remove the files that patterns match, and folders that are empty then.

    Return the size of what is left in bytes, metadata.json included; 0 if nothing else is left.
    """
    for name in matching(files_of(folder), globs):
        (folder / name).unlink(missing_ok=True)
    for inner, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):  # it is not empty
            os.rmdir(inner)
    left = files_of(folder)
    return sum((folder / name).lstat().st_size for name in left) if left != [METADATA] else 0


def _remove_checkpoint(root: Path, uuid: str, path: Path) -> None:
    """Remove a checkpoint.

    Raises:
        OSError: It cannot be removed, or not all of it.
    """
    doomed = root / f"{_DOOMED}{uuid}"
    with suppress(FileNotFoundError):  # gone already, or just now
        path.rename(doomed)  # so that a reader never finds half of it
    if doomed.is_dir() and not doomed.is_symlink():
        _remove_tree(doomed)


def _remove_tree(folder: Path) -> None:
    """Remove a folder that others may be removing, too: a writer takes `.part-*` for leftovers."""
    while os.path.lexists(folder):
        with suppress(FileNotFoundError):  # another was faster, with this file; the rest is next
            shutil.rmtree(folder)


def _is_checkpoint(path: Path, uuid: str) -> bool:
    if path.is_symlink() or not path.is_dir():
        return False
    try:
        metadata = json.loads((path / METADATA).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(metadata, dict) and metadata.get("uuid") == uuid


def _folders_of(experiment_id: int, data_dir: Path) -> Iterator[Path]:
    root = runs_root(data_dir)
    if root.is_dir():
        yield from sorted(root.glob(f"{experiment_id}.*.*"))
    yield data_dir / "tensorboard" / str(experiment_id)
    yield data_dir / "traces" / str(experiment_id)


def _remove_folder(folder: Path, removed: Removed) -> None:
    if folder.is_symlink() or not folder.is_dir():
        return
    try:
        _remove_tree(folder)
    except OSError as error:
        removed.problems.append(f"cannot remove the folder {folder}: {error.strerror}")
