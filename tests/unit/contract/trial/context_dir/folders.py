"""A folder with code, and what tests put into it."""

from __future__ import annotations

from pathlib import Path

from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages.requests import ContextRef
from det_jupyter.contract.trial.context_dir import (
    plan_context,
    unpack_context,
)


def write(folder: Path, name: str, text: str = "x") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def link(path: Path, target: Path | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def links_of(folder: Path) -> dict[str, str]:
    entries = plan_context(folder).entries
    return {name: entry.link for name, entry in entries.items() if entry.kind == "link"}


def copy_of(ref: ContextRef, blobs: BlobStore, tmp_path: Path) -> Path:
    target = tmp_path / "run" / "work"
    unpack_context(ref, blobs, target)
    return target
