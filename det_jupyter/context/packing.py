"""Makes one tar file of a context: the same files make the same bytes, wherever they lie."""

from __future__ import annotations

import io
import tarfile

from det_jupyter.blobs import BlobStore
from det_jupyter.context.planning import MAX_BYTES, ContextPlan
from det_jupyter.context.walking import Entry
from det_jupyter.errors import CaptureError
from det_jupyter.wire.capsule import ContextRef
from det_jupyter.words import size

_TIME = 315_532_800  # 1980-01-01, the first moment that zip files can name
_TYPES = {"file": tarfile.REGTYPE, "folder": tarfile.DIRTYPE, "link": tarfile.SYMTYPE}


def pack_context(plan: ContextPlan, blobs: BlobStore) -> ContextRef:
    """Store what was planned as a blob.

    Raises:
        CaptureError: The plan has problems, or its files have changed meanwhile.
    """
    if plan.problems:
        raise CaptureError(plan.problems)
    stream = io.BytesIO()
    num_bytes = 0
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, entry in plan.entries.items():
            content = plan.read(name) if entry.kind == "file" else b""
            num_bytes += len(content)
            if num_bytes > MAX_BYTES:  # files grew meanwhile
                raise CaptureError([f"context: it grows, and is above {size(MAX_BYTES)} now"])
            tar.addfile(_member(name, entry, len(content)), io.BytesIO(content))
    return ContextRef(
        blob=blobs.put(stream.getbuffer()), num_files=len(plan.files), size_bytes=num_bytes
    )


def _member(name: str, entry: Entry, num_bytes: int) -> tarfile.TarInfo:
    """Return the header: nothing of the owner, the time or the place of the file is in it."""
    member = tarfile.TarInfo(name)
    member.type = _TYPES[entry.kind]
    member.mode = 0o755 if entry.is_executable or entry.kind != "file" else 0o644
    member.mtime = _TIME
    member.size = num_bytes
    member.linkname = entry.link
    return member
