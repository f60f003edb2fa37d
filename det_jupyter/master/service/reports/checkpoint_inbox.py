"""Receives the checkpoints that agents upload to the master's own folder.

    put (the parts of each file, in their order)   ->  a draft in the folder
    commit (the sizes of an agent's files)         ->  the checkpoint, once all agents with files
                                                       of it have committed theirs

A draft is lost when the master exits or a disk is full; the agents then upload their files again.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from det_jupyter.contract.messages import StoredCheckpoint
from det_jupyter.errors import CheckpointError, Conflict
from det_jupyter.storage.contract import StorageDraft, is_name, path_of
from det_jupyter.storage.directory import DirectoryStorage

_RESERVE_BYTES = 32 * 1024 * 1024  # bytes that stay free for the database
_LONGEST_NAME = 255 - len(".part-upload-")  # bytes of a checkpoint's name
_LONGEST_PATH, _DEEPEST = 2000, 200  # most bytes and folders of a file's path in a checkpoint
# Age at which a draft is dropped: uploads are repeated every few seconds, or given up
# (agent/link).
_DRAFT_S = 900.0


@dataclass(eq=False)
class _Arriving:
    """A checkpoint that is being uploaded."""

    draft: StorageDraft
    changed_at: float  # monotonic time of the last upload
    shares: dict[int, dict[str, int]] = field(default_factory=dict)  # committed files, by agent
    lock: threading.Lock = field(default_factory=threading.Lock)  # held by a commit


class CheckpointInbox:
    """Receives checkpoints. Its methods block; several threads may call them.

    Args:
        data_dir: The master's data folder.
    """

    def __init__(self, data_dir: Path) -> None:
        self._storage = DirectoryStorage(data_dir / "checkpoints", is_own=True)
        self._arriving: dict[str, _Arriving] = {}
        self._lock = threading.Lock()

    def files(self, uuid: str) -> dict[str, int]:
        """Return the files of a checkpoint with their sizes; empty if it is not in the folder."""
        return self._storage.files(uuid)

    def path(self, uuid: str, name: str) -> Path:
        """Return the path of a file of a checkpoint.

        Raises:
            CheckpointError: The name leads out of the checkpoint.
        """
        return self._storage.root / _checked(uuid) / inside(name)

    def put(self, uuid: str, name: str, offset: int, part: bytes) -> None:
        """Append a part to a file of a checkpoint that is being uploaded.

        Args:
            uuid: The checkpoint.
            name: The file's path in the checkpoint.
            offset: Position of the part in the file; 0 starts the file again.
            part: The bytes.

        Raises:
            CheckpointError: The name leads out of the checkpoint.
            Conflict: The file has no bytes before the part, for example because the master has
                restarted.
            OSError: The part cannot be written. The draft is removed, which frees its space.
        """
        name = str(inside(name))
        with self._lock:
            arriving = self._arriving.get(_checked(uuid))
            if arriving is None:
                self._discard_old()
                draft = self._storage.begin_upload(uuid)
                arriving = self._arriving[uuid] = _Arriving(draft, time.monotonic())
        arriving.changed_at = time.monotonic()
        try:
            write_part(arriving.draft.path / name, offset, part)
        except OSError as error:
            self._discard(uuid, arriving)
            # An error of a write to an open file has no name.
            error.filename = str(self._storage.root)
            raise
        arriving.changed_at = time.monotonic()

    def commit(
        self, uuid: str, files: Mapping[str, int], share: int = 0, num_shares: int = 1
    ) -> StoredCheckpoint:
        """Commit an agent's files of a checkpoint; create the checkpoint if no files are missing.

        Idempotent: agents repeat it until there is a checkpoint.

        Args:
            uuid: The checkpoint.
            files: The sizes of the files that the agent has uploaded; none if a rank has deleted
                them, or if an earlier agent process has uploaded and removed them.
            share: The number of the agent among those with files of this checkpoint.
            num_shares: How many agents have files of this checkpoint.

        Returns:
            The path of the checkpoint, or that files of other agents are missing.

        Raises:
            Conflict: Not all of these files were uploaded, for example because the master has
                restarted.
        """
        with self._lock:
            arriving = self._arriving.get(_checked(uuid))
        if arriving is None or not files:
            return self._committed(uuid)
        with arriving.lock:
            if self._arriving.get(uuid) is not arriving or self._storage.files(uuid):
                # The checkpoint exists, but the answer to the first commit was lost.
                self._discard(uuid, arriving)
                return self._committed(uuid)
            sizes = _sizes(arriving.draft.path)
            if any(sizes.get(name) != size for name, size in files.items()):
                raise _incomplete(uuid)
            arriving.shares[share] = dict(files)
            if len(arriving.shares) < num_shares:
                silent_s = max(0.0, time.monotonic() - arriving.changed_at)
                return StoredCheckpoint(path="", silent_s=silent_s)
            if sizes != {
                name: size for of in arriving.shares.values() for name, size in of.items()
            }:
                self._discard(uuid, arriving)
                raise _incomplete(uuid)
            try:
                arriving.draft.commit()
            except OSError:  # a full disk, for example: the agents upload it again
                self._discard(uuid, arriving)
                raise
            self._forget(uuid, arriving)
        return self._committed(uuid)

    def _committed(self, uuid: str) -> StoredCheckpoint:
        if not self._storage.files(uuid):
            raise _incomplete(uuid)
        return StoredCheckpoint(path=path_of(self._storage, uuid))

    def _forget(self, uuid: str, arriving: _Arriving) -> None:
        with self._lock:
            if self._arriving.get(uuid) is arriving:
                del self._arriving[uuid]

    def _discard(self, uuid: str, arriving: _Arriving) -> None:
        self._forget(uuid, arriving)
        arriving.draft.discard()

    def _discard_old(self) -> None:
        """Remove drafts whose upload has stopped for so long that it will not continue."""
        before = time.monotonic() - _DRAFT_S
        for uuid, arriving in list(self._arriving.items()):
            if arriving.changed_at < before:
                del self._arriving[uuid]
                arriving.draft.discard()


def write_part(path: Path, offset: int, part: bytes) -> None:
    """Append bytes to a file, or overwrite its bytes from `offset` on.

    Raises:
        CheckpointError: There is a folder of this name, or a file in the place of a folder.
        Conflict: The file ends before `offset`.
        OSError: The part cannot be written, or would leave too little space for the database.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        raise CheckpointError(f"{path.name[:80]!r}: a file and a folder have this name") from None
    if shutil.disk_usage(path.parent).free < len(part) + _RESERVE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        if offset > os.fstat(file.fileno()).st_size:
            raise Conflict(f"{path.name}: its bytes before {offset} are gone; upload it again")
        file.seek(offset)
        file.write(part)


def _incomplete(uuid: str) -> Conflict:
    return Conflict(f"checkpoint {uuid}: not all files have arrived; upload it again")


def _checked(uuid: str) -> str:
    if not is_name(uuid) or "\0" in uuid or _num_bytes(uuid) > _LONGEST_NAME:
        raise CheckpointError(f"got {uuid[:80]!r}, expected the name of a checkpoint")
    return uuid


def inside(name: str) -> PurePosixPath:
    """Check a file's name, and return it as a path in a folder.

    Raises:
        CheckpointError: The name leads out of the folder, or is too long.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
        raise CheckpointError(f"got {name[:80]!r}, expected the path of a file in a folder")
    too_long = any(_num_bytes(part) > 255 for part in path.parts)
    if too_long or _num_bytes(name) > _LONGEST_PATH or len(path.parts) > _DEEPEST:
        raise CheckpointError(
            f"{name[:80]!r}...: the path of a file is too long; expected at most {_LONGEST_PATH} "
            f"bytes, 255 in each name, and {_DEEPEST} names"
        )
    return path


def _num_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))


def _sizes(folder: Path) -> dict[str, int]:
    sizes = {}
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # the draft is being discarded
            if path.is_file():
                sizes[path.relative_to(folder).as_posix()] = path.stat().st_size
    return sizes
