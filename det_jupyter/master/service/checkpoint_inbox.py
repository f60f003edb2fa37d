"""Receives the checkpoints that agents on other computers upload to the master's own folder.

    put (the parts of each file in turn) -> a draft in the folder
    commit (the sizes of all files)      -> the checkpoint; or the files that are not complete

A draft is lost when the master exits; the agent then uploads the checkpoint again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from det_jupyter.contract.messages import CheckpointRef
from det_jupyter.errors import CheckpointError, Conflict
from det_jupyter.master.machine.model.state import Trial
from det_jupyter.storage.contract import StorageDraft, is_name, path_of
from det_jupyter.storage.directory import DirectoryStorage

_DRAFT_S = 600.0  # an upload is tried again every few seconds


class CheckpointInbox:
    """Receives checkpoints. Its methods block; for one checkpoint they are called in turn.

    Args:
        data_dir: The master's data folder.
    """

    def __init__(self, data_dir: Path) -> None:
        self._storage = DirectoryStorage(data_dir / "checkpoints", is_own=True)
        self._drafts: dict[str, StorageDraft] = {}
        self._changed_at: dict[str, float] = {}  # by draft: monotonic time of its last upload

    def files(self, uuid: str) -> dict[str, int]:
        """Return the files of a checkpoint with their sizes; empty if it is not in the folder."""
        return self._storage.files(uuid)

    def path(self, uuid: str, name: str) -> Path:
        """Return the path of a file of a checkpoint.

        Raises:
            CheckpointError: The name leads out of the checkpoint.
        """
        return self._storage.root / _checked(uuid) / _inside(name)

    def put(self, uuid: str, name: str, offset: int, part: bytes) -> None:
        """Append a part to a file of a checkpoint that is being uploaded.

        Args:
            uuid: The checkpoint.
            name: The file's path in the checkpoint.
            offset: Where the part begins in the file.
            part: The bytes.

        Raises:
            CheckpointError: The name leads out of the checkpoint.
            Conflict: The file ends before `offset`: what was uploaded of it is gone, because the
                master has restarted.
        """
        draft = self._drafts.get(_checked(uuid))
        if draft is None:
            self._discard_old()
            draft = self._drafts[uuid] = self._storage.begin(uuid)
        self._changed_at[uuid] = time.monotonic()
        path = draft.path / _inside(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            if offset > os.fstat(file.fileno()).st_size:
                raise Conflict(f"{name}: its bytes before {offset} are gone; upload it again")
            file.seek(offset)
            file.write(part)

    def commit(self, uuid: str, files: Mapping[str, int]) -> str:
        """Commit the uploaded files as the checkpoint, and return its path. Idempotent.

        Args:
            uuid: The checkpoint.
            files: The sizes of all its files.

        Raises:
            Conflict: Not all files were uploaded, for example because the master has restarted.
        """
        draft = self._drafts.pop(_checked(uuid), None)
        if self._storage.files(uuid):
            if draft is not None:  # the answer to the first commit was lost
                draft.discard()
        else:
            sizes = {} if draft is None else _sizes(draft.path)
            if draft is None or sizes != dict(files):
                if draft is not None:
                    draft.discard()
                raise Conflict(f"checkpoint {uuid}: not all files have arrived; upload it again")
            try:
                draft.commit()
            except OSError:  # a full disk, for example: the agent uploads it again
                draft.discard()
                raise
        return path_of(self._storage, uuid)

    def _discard_old(self) -> None:
        """Remove drafts whose upload has not gone on for a long time, and will not any more."""
        before = time.monotonic() - _DRAFT_S
        for uuid, changed_at in list(self._changed_at.items()):
            if changed_at < before or uuid not in self._drafts:
                del self._changed_at[uuid]
                if (draft := self._drafts.pop(uuid, None)) is not None:
                    draft.discard()


def start_checkpoints(trial: Trial) -> set[str]:
    """Return the uuids of the checkpoints that the trial's present run may start from."""
    starts_from = trial.allocation.starts_from if trial.allocation is not None else None
    refs: list[CheckpointRef | None] = [starts_from, trial.warm_start]
    return {ref.uuid for ref in refs if ref is not None}


def _checked(uuid: str) -> str:
    if not is_name(uuid) or "\0" in uuid:
        raise CheckpointError(f"got {uuid[:80]!r}, expected the name of a checkpoint")
    return uuid


def _inside(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
        raise CheckpointError(f"got {name[:80]!r}, expected the path of a file in a checkpoint")
    return path


def _sizes(folder: Path) -> dict[str, int]:
    return {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file()
    }
