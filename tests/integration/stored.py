"""Writes checkpoints into a storage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from det_jupyter.storage import LocalStorage


@contextmanager
def stored(storage: LocalStorage, uuid: str) -> Iterator[Path]:
    """Give an empty folder to fill; on leaving, its content becomes the checkpoint."""
    draft = storage.begin(uuid)
    try:
        yield draft.path
        draft.commit()
    except BaseException:
        draft.discard()
        raise
