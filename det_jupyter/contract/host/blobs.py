"""Content-addressed blobs: written once, memory-mapped by every rank that needs them.

A blob's name is the SHA-256 of its bytes, so equal data is stored once. A blob that exists is
complete: it is synced to the disk before it gets its name.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Self

from det_jupyter.contract.host.disk_space import room_of
from det_jupyter.contract.host.paths import HOME_VARIABLE
from det_jupyter.errors import DetError, NotFound

# A blob that is being received is synced to the disk after each of so many bytes.
_SYNC_BYTES = 64 << 20


class BlobStore:
    """The blobs under one folder. Safe to use from several processes at once."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def of(cls, data_dir: str | Path) -> Self:
        """Return the store in a data folder."""
        return cls(Path(data_dir) / "blobs")

    def path(self, digest: str) -> Path:
        """Return the path of the blob, which may not exist."""
        return self.root / digest[:2] / digest

    def put(self, data: bytes | bytearray | memoryview) -> str:
        """Store `data` unless it exists, and return its digest.

        Raises:
            DetError: It cannot be written, to a full disk, for example; the cause is an OSError.
        """
        view = memoryview(data).cast("B")
        digest = hashlib.sha256(view).hexdigest()
        path = self.path(digest)
        with suppress(FileNotFoundError):
            os.utime(path)  # the master deletes unreferenced blobs that are old
            return digest
        try:
            with _written_whole(path) as file:
                file.write(view)
        except OSError as error:
            room = room_of(self.root)
            free = f"; {room.free_bytes / 1e6:.3g} MB are free there" if room is not None else ""
            raise DetError(
                f"{len(view) / 1e6:.3g} MB cannot be stored in {self.root} "
                f"({error.strerror}{free}); make room, or set {HOME_VARIABLE} to another folder"
            ) from error
        return digest

    @contextmanager
    def receiving(self, digest: str) -> Iterator[Callable[[bytes], object]]:
        """Yield a function that receives the blob's bytes in parts; store the blob at the end.

        The function syncs the bytes to the disk at intervals, so that the end takes no longer for
        a large blob than for a small one.

        Raises:
            DetError: They are not the bytes of this blob; nothing is stored.
        """
        found = hashlib.sha256()
        with _written_whole(self.path(digest)) as file:
            num_unsynced = 0

            def take(part: bytes) -> None:
                nonlocal num_unsynced
                found.update(part)
                file.write(part)
                num_unsynced += len(part)
                if num_unsynced >= _SYNC_BYTES:
                    num_unsynced = 0
                    _sync(file)

            yield take
            if found.hexdigest() != digest:
                raise DetError(f"blob {digest[:12]} arrived with other bytes")

    def read(self, digest: str) -> bytes:
        """Return the blob's bytes."""
        return bytes(self.map(digest))

    def map(self, digest: str) -> memoryview:
        """Map the blob into memory, copy-on-write.

        All ranks share the pages. A rank that writes to its array gets private copies of those
        pages; other ranks and the blob do not change.

        Raises:
            NotFound: The blob does not exist.
        """
        if not digest.isalnum():  # "../name" would be a file outside the store
            raise NotFound(f"blob {digest!r:.80}: that is no name of a blob")
        path = self.path(digest)
        try:
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_size == 0:  # an empty file cannot be mapped
                    return memoryview(bytearray())
                return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        except FileNotFoundError:
            raise NotFound(
                f"blob {digest[:12]} is not in {self.root}: a part of what the notebook captured "
                "is gone; submit the experiment anew from the notebook"
            ) from None


@contextmanager
def _written_whole(path: Path) -> Iterator[BinaryIO]:
    """Yield a file to write; it gets its name when the block ends without an error."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, scratch = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            # Without it, a power cut could leave an incomplete blob.
            # [m] 100 MB on an SSD: 0.03 s, half of the hashing.
            _sync(file)
        os.replace(scratch, path)
    except BaseException:  # the disk is full, for example
        with suppress(FileNotFoundError):
            os.unlink(scratch)
        raise


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


class FlatBlobs(BlobStore):
    """Blobs without subfolders: for the code in a checkpoint, where each folder is synced."""

    def path(self, digest: str) -> Path:
        """Return the path of the blob, which may not exist."""
        return self.root / digest
