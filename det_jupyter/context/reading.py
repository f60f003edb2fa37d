"""The text of a context, for people."""

from __future__ import annotations

import io
import tarfile
from pathlib import PurePosixPath

from det_jupyter.blobs import BlobStore
from det_jupyter.errors import NotFound
from det_jupyter.wire.capsule import ContextRef
from det_jupyter.words import size

_MAX_FILE_BYTES = 256 * 2**10
_MAX_BYTES = 4 * 2**20  # of all files together
_SUFFIXES = {
    "", ".bash", ".c", ".cfg", ".cpp", ".cu", ".h", ".ini", ".json", ".md", ".py", ".pyi", ".rst",
    ".sh", ".toml", ".txt", ".yaml", ".yml",
}  # fmt: skip


def context_files(ref: ContextRef, blobs: BlobStore) -> dict[str, str]:
    """Return the text files of a context, by path; of large ones a line that says so.

    Binary files and links are left out.

    Raises:
        NotFound: It is not stored any more, or damaged.
    """
    try:
        return _text_files(ref, blobs)
    except tarfile.TarError as error:
        raise NotFound(f"the context directory is damaged (blob {ref.blob}): {error}") from None


def _text_files(ref: ContextRef, blobs: BlobStore) -> dict[str, str]:
    texts: dict[str, str] = {}
    left = _MAX_BYTES
    with tarfile.open(fileobj=io.BytesIO(blobs.map(ref.blob)), mode="r:") as tar:
        for member in tar:
            if not member.isreg() or PurePosixPath(member.name).suffix.lower() not in _SUFFIXES:
                continue
            if member.size > min(left, _MAX_FILE_BYTES):
                texts[member.name] = f"# {size(member.size)}: too much to be shown here\n"
                continue
            file = tar.extractfile(member)
            text = _text_of(b"" if file is None else file.read())
            if text is not None:
                texts[member.name] = text
                left -= member.size
    return texts


def _text_of(content: bytes) -> str | None:
    if b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None
