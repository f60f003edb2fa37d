"""Writes checkpoints into a storage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from det_jupyter.storage.directory import DirectoryStorage


@contextmanager
def stored(storage: DirectoryStorage, uuid: str) -> Iterator[Path]:
    """Give an empty folder to fill; on leaving, its content becomes the checkpoint."""
    draft = storage.begin(uuid)
    try:
        yield draft.path
        draft.commit()
    except BaseException:
        draft.discard()
        raise
