"""Saves and restores folders as checkpoints, whatever is in them."""

from __future__ import annotations

import json
import platform
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG
from typing import Any

import torch

from det_jupyter._version import __version__
from det_jupyter.bounds import find_value_problem
from det_jupyter.core.distributed import DistributedContext, local_chief_first
from det_jupyter.core.train import RecordSink, checked_steps
from det_jupyter.errors import CheckpointError
from det_jupyter.records import CheckpointSaved
from det_jupyter.storage import CheckpointStorage, Draft

METADATA_FILE = "metadata.json"


class CheckpointDraft:
    """A checkpoint that is being written; made by CheckpointContext.begin on the chief.

    Attributes:
        uuid: Name of the checkpoint.
    """

    def __init__(
        self, storage: CheckpointStorage, sink: RecordSink, metadata: Mapping[str, Any]
    ) -> None:
        self.uuid = str(metadata["uuid"])
        self._storage = storage
        self._sink = sink
        self._metadata = dict(metadata)
        self._draft: Draft | None = None

    def open(self) -> Path:
        """Return the empty folder to fill. First removes drafts of writers that died.

        It may run in another thread, as `sync` may; it writes no record.
        """
        self._draft = self._storage.begin(self.uuid)
        return self._draft.path

    def sync(self) -> None:
        """Sync the files so far to the disk, so that `commit` waits less."""
        self._opened().sync()

    def commit(self) -> None:
        """Make it a checkpoint and record it; if this raises, do neither."""
        draft = self._opened()
        text = json.dumps(self._metadata, indent=2, default=str)
        (draft.path / METADATA_FILE).write_text(text, encoding="utf-8")
        size_bytes = sum(map(_own_bytes, draft.path.rglob("*")))
        try:
            draft.commit()
            self._record(size_bytes)
        except Exception:
            # Without a record the master does not know it, and would never delete it.
            with suppress(OSError):  # report the first failure
                self._storage.delete(self.uuid)
            raise

    def _record(self, size_bytes: int) -> None:
        record = CheckpointSaved(
            at=time.time(),
            uuid=self.uuid,
            steps_completed=self._metadata["steps_completed"],
            path=str(self._storage.find(self.uuid)),
            size_bytes=size_bytes,
            metadata=self._metadata,
        )
        self._sink.write(record)

    def discard(self) -> None:
        """Remove the draft. May be called twice, and before `open`."""
        if self._draft is not None:
            self._draft.discard()

    def _opened(self) -> Draft:
        if self._draft is None:
            raise RuntimeError("checkpoint: this one has no folder yet; call open() first")
        return self._draft


class CheckpointContext:
    """The checkpoints of one trial. Only the chief stores; every rank may read.

    Args:
        storage: Stores them.
        sink: Gets a CheckpointSaved for each.
        distributed: This rank's place.
        belongs_to: Ids of experiment and trial, for the metadata of each.
    """

    def __init__(
        self,
        storage: CheckpointStorage,
        sink: RecordSink,
        distributed: DistributedContext,
        belongs_to: Mapping[str, Any],
    ) -> None:
        self._storage = storage
        self._sink = sink
        self._distributed = distributed
        self._belongs_to = dict(belongs_to)

    def begin(self, metadata: Mapping[str, Any]) -> CheckpointDraft:
        """Return a draft to fill and commit later; does not use the disk yet.

        Args:
            metadata: Anything JSON can hold; `steps_completed` is required.
        """
        self._check(metadata)
        full = {"uuid": str(uuid.uuid4()), **self._belongs_to, **_versions(), **metadata}
        return CheckpointDraft(self._storage, self._sink, full)

    @contextmanager
    def store_path(self, metadata: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
        """Yield an empty folder to fill, and the uuid of its checkpoint.

        The checkpoint exists after the block; if the block raises, it is discarded.

        Args:
            metadata: Anything JSON can hold; `steps_completed` is required.
        """
        draft = self.begin(metadata)
        path = draft.open()
        try:
            yield path, draft.uuid
            draft.commit()
        except BaseException:
            draft.discard()
            raise

    def upload(self, folder: Path | str, metadata: Mapping[str, Any]) -> str:
        """Store a copy of the folder as a checkpoint and return its uuid."""
        with self.store_path(metadata) as (path, name):
            shutil.copytree(folder, path, dirs_exist_ok=True)
        return name

    @contextmanager
    def restore_path(self, uuid: str) -> Iterator[Path]:
        """Yield the folder of a checkpoint, for reading only.

        Raises:
            CheckpointError: It does not exist.
        """
        yield self._find("restore_path", uuid)

    def download(self, uuid: str, folder: Path | str) -> None:
        """Copy a checkpoint into the folder, which is made if necessary.

        Collective among the ranks of a computer: the first copies.

        Raises:
            CheckpointError: It does not exist.
        """
        path = self._find("download", uuid)
        with local_chief_first(self._distributed):
            if self._distributed.local_rank == 0:
                shutil.copytree(path, folder, dirs_exist_ok=True)

    def get_metadata(self, uuid: str) -> dict[str, Any]:
        """Return the metadata that the checkpoint was stored with."""
        return read_metadata(self._find("get_metadata", uuid))

    def delete(self, uuid: str) -> None:
        """Remove the checkpoint from storage."""
        _check_uuid("delete", uuid)
        self._storage.delete(uuid)

    def _find(self, call: str, uuid: object) -> Path:
        return self._storage.find(_check_uuid(call, uuid))

    def _check(self, metadata: Mapping[str, Any]) -> None:
        if not self._distributed.is_chief:
            raise RuntimeError(
                "checkpoint: only the chief (rank 0) stores checkpoints, and this is rank "
                f"{self._distributed.rank}; guard the call with `if context.distributed.rank == 0`"
            )
        try:
            checked_steps(metadata.get("steps_completed"))
        except ValueError as error:
            raise ValueError(f"checkpoint: metadata: {error}, the batches trained") from None
        if problem := find_value_problem(dict(metadata)):
            raise ValueError(f"checkpoint: metadata: got {problem}")


def _check_uuid(call: str, uuid: object) -> str:
    if isinstance(uuid, str):
        return uuid
    remedy = "info.latest_checkpoint is None where training begins: `if uuid is not None: ...`"
    raise CheckpointError(
        f"checkpoint.{call}: got {uuid!r:.100}, expected the uuid of a checkpoint"
        f"{f'; {remedy}' if uuid is None else ', a string'}"
    )


def read_metadata(path: Path) -> dict[str, Any]:
    """Return the metadata of the checkpoint in this folder.

    Raises:
        CheckpointError: The folder is not a checkpoint.
    """
    try:
        metadata: dict[str, Any] = json.loads((path / METADATA_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} is not a checkpoint: it has no {METADATA_FILE}") from None
    except ValueError as error:
        raise CheckpointError(f"{path / METADATA_FILE} is damaged: {error}") from None
    return metadata


def _own_bytes(file: Path) -> int:
    """Return the size of the file; 0 if it is a link to a file that exists elsewhere too."""
    status = file.stat()
    return status.st_size if S_ISREG(status.st_mode) and status.st_nlink == 1 else 0


def _versions() -> dict[str, str]:
    return {
        "det_jupyter_version": __version__,
        "torch_version": torch.__version__,
        "python_version": platform.python_version(),
    }
