"""Makes the copy of a context that ranks work in."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from pathlib import Path

from det_jupyter.blobs import BlobStore
from det_jupyter.errors import LaunchError
from det_jupyter.wire.capsule import ContextRef


def unpack_context(ref: ContextRef, blobs: BlobStore, target: Path) -> None:
    """Make `target` a copy of the context, unless it is there: then it is complete.

    Nothing is written outside of `target`, whatever is in the blob. Only one process at a time
    may unpack to the same target.

    Raises:
        NotFound: The blob is not there.
        LaunchError: It is damaged.
        OSError: It cannot be written: the disk is full, say.
    """
    if target.exists():
        return
    scratch = target.with_name(f".{target.name}.part")
    try:
        if scratch.exists():  # of an agent that was killed
            shutil.rmtree(scratch)
        scratch.mkdir(mode=0o700, parents=True)
        with tarfile.open(fileobj=io.BytesIO(blobs.map(ref.blob)), mode="r:") as tar:
            tar.extractall(scratch, filter="data")
        os.replace(scratch, target)
    except tarfile.TarError as error:
        raise LaunchError(f"the stored context directory is damaged: {error}") from error
