"""Saving and restoring folders of state as checkpoints. Knows nothing of what is in them."""

from __future__ import annotations

import json
import platform
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from det_jupyter._version import __version__
from det_jupyter.core.distributed import DistributedContext
from det_jupyter.core.train import RecordSink
from det_jupyter.errors import CheckpointError
from det_jupyter.records import CheckpointSaved
from det_jupyter.storage import CheckpointStorage

METADATA_FILE = "metadata.json"


class CheckpointContext:
    """The checkpoints of one trial. Only the chief stores; every rank may read.

    Args:
        storage: Where they are kept.
        sink: Gets a CheckpointSaved for each.
        distributed: This rank's place.
        belongs_to: Goes into the metadata of each: ids of experiment and trial.
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

    @contextmanager
    def store_path(self, metadata: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
        """Give an empty folder to fill, and the uuid of the checkpoint that it becomes.

        The checkpoint exists from the end of the block on; if the block raises, it never does.

        Args:
            metadata: Anything JSON can hold; `steps_completed` is required.
        """
        steps_completed = self._check(metadata)
        name = str(uuid.uuid4())
        full = {"uuid": name, **self._belongs_to, **_versions(), **metadata}
        with self._storage.store(name) as path:
            yield path, name
            text = json.dumps(full, indent=2, default=str)
            (path / METADATA_FILE).write_text(text, encoding="utf-8")
            size_bytes = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        record = CheckpointSaved(
            at=time.time(),
            uuid=name,
            steps_completed=steps_completed,
            path=str(self._storage.find(name)),
            size_bytes=size_bytes,
            metadata=full,
        )
        self._sink.write(record)

    def upload(self, folder: Path | str, metadata: Mapping[str, Any]) -> str:
        """Store a copy of the folder as a checkpoint and return its uuid."""
        with self.store_path(metadata) as (path, name):
            shutil.copytree(folder, path, dirs_exist_ok=True)
        return name

    @contextmanager
    def restore_path(self, uuid: str) -> Iterator[Path]:
        """Give the folder of a checkpoint, for reading only.

        Raises:
            CheckpointError: There is none of this name.
        """
        yield self._storage.find(uuid)

    def get_metadata(self, uuid: str) -> dict[str, Any]:
        """Return the metadata that the checkpoint was stored with."""
        return read_metadata(self._storage.find(uuid))

    def delete(self, uuid: str) -> None:
        """Remove the checkpoint from storage."""
        self._storage.delete(uuid)

    def _check(self, metadata: Mapping[str, Any]) -> int:
        if not self._distributed.is_chief:
            raise RuntimeError(
                "checkpoint: only the chief (rank 0) stores checkpoints, and this is rank "
                f"{self._distributed.rank}; guard the call with `if context.distributed.rank == 0`"
            )
        steps_completed = metadata.get("steps_completed")
        if isinstance(steps_completed, bool) or not isinstance(steps_completed, int):
            raise ValueError(
                f"checkpoint: metadata has steps_completed {steps_completed!r}, "
                "expected the whole number of batches trained"
            )
        return steps_completed


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


def _versions() -> dict[str, str]:
    return {
        "det_jupyter_version": __version__,
        "torch_version": torch.__version__,
        "python_version": platform.python_version(),
    }
