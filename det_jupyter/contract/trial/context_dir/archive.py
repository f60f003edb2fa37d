"""The tar file of a context: written, unpacked for a run, and read as text."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from contextlib import suppress
from pathlib import Path, PurePosixPath

from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages.requests import ContextRef
from det_jupyter.contract.trial.context_dir.context_plan import MAX_BYTES, ContextPlan
from det_jupyter.contract.trial.context_dir.walking import Entry
from det_jupyter.contract.values.text import size
from det_jupyter.errors import CaptureError, LaunchError, NotFound

_TIME = 315_532_800  # modification time of all files: 1980-01-01, the first that zip files allow
_TYPES = {"file": tarfile.REGTYPE, "folder": tarfile.DIRTYPE, "link": tarfile.SYMTYPE}
# Limits of `context_files`: of one file, and of all together.
_MAX_FILE_BYTES = 256 * 2**10
_MAX_SHOWN_BYTES = 4 * 2**20
_SUFFIXES = {
    "", ".bash", ".c", ".cfg", ".cpp", ".cu", ".h", ".ini", ".json", ".md", ".py", ".pyi", ".rst",
    ".sh", ".toml", ".txt", ".yaml", ".yml",
}  # fmt: skip


def pack_context(plan: ContextPlan, blobs: BlobStore) -> ContextRef:
    """Store the planned files as a blob; equal files give equal bytes, in whatever folder.

    Raises:
        CaptureError: The plan has problems, or its files have changed since.
    """
    if plan.problems:
        raise CaptureError(plan.problems)
    stream = io.BytesIO()
    num_bytes = 0
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, entry in plan.entries.items():
            content = plan.read(name) if entry.kind == "file" else b""
            num_bytes += len(content)
            if num_bytes > MAX_BYTES:  # files have grown since
                raise CaptureError([f"context: it grows, and is above {size(MAX_BYTES)} now"])
            tar.addfile(_member(name, entry, len(content)), io.BytesIO(content))
    return ContextRef(
        blob=blobs.put(stream.getbuffer()), num_files=len(plan.files), size_bytes=num_bytes
    )


def _member(name: str, entry: Entry, num_bytes: int) -> tarfile.TarInfo:
    """Return the header of a file, without its owner, time and folder."""
    member = tarfile.TarInfo(name)
    member.type = _TYPES[entry.kind]
    member.mode = 0o755 if entry.is_executable or entry.kind != "file" else 0o644
    member.mtime = _TIME
    member.size = num_bytes
    member.linkname = entry.link
    return member


def unpack_context(ref: ContextRef, blobs: BlobStore, target: Path) -> None:
    """Unpack the context to the folder `target`; if it exists, it is complete.

    Nothing is written outside of `target`, whatever the blob contains. Only one process at a time
    may unpack to the same target.

    Raises:
        NotFound: The blob does not exist.
        LaunchError: The blob is damaged.
        OSError: The files cannot be written: the disk is full, for example.
    """
    if target.exists():
        return
    scratch = target.with_name(f".{target.name}.part")
    try:
        if scratch.exists():  # left by an agent that was killed
            shutil.rmtree(scratch)
        scratch.mkdir(mode=0o700, parents=True)
        with tarfile.open(fileobj=io.BytesIO(blobs.map(ref.blob)), mode="r:") as tar:
            tar.extractall(scratch, filter="data")
        os.replace(scratch, target)
    except tarfile.TarError as error:
        raise LaunchError(f"the stored context directory is damaged: {error}") from error


def context_files(ref: ContextRef, blobs: BlobStore) -> dict[str, str]:
    """Return the text files of a context by path; large ones are replaced by a remark.

    Binary files and links are left out.

    Raises:
        NotFound: The blob does not exist, or is damaged.
    """
    try:
        with tarfile.open(fileobj=io.BytesIO(blobs.map(ref.blob)), mode="r:") as tar:
            return _text_files(tar)
    except tarfile.TarError as error:
        raise NotFound(f"the context directory is damaged (blob {ref.blob}): {error}") from None


def _text_files(tar: tarfile.TarFile) -> dict[str, str]:
    texts: dict[str, str] = {}
    left = _MAX_SHOWN_BYTES
    for member in tar:
        if not member.isreg() or PurePosixPath(member.name).suffix.lower() not in _SUFFIXES:
            continue
        if member.size > min(left, _MAX_FILE_BYTES):
            texts[member.name] = f"# {size(member.size)}: too much to be shown here\n"
            continue
        file = tar.extractfile(member)
        content = b"" if file is None else file.read()
        with suppress(UnicodeDecodeError):  # a binary file
            if b"\0" not in content:
                texts[member.name] = content.decode()
                left -= member.size
    return texts
