"""Looks through a whole bucket: the checkpoints in it, and what killed uploads have left.

A folder without metadata.json is that of an upload of ours if it has a mark of an upload or a list
of files (objects.py); others are not touched. Objects and parts have times of the server. What was
written lately may be that of a running upload, also of another master: it stays.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import obstore

from det_jupyter.contract.values.text import listed
from det_jupyter.storage.buckets.leftovers import PartUploads, Upload
from det_jupyter.storage.buckets.objects import (
    LIST,
    MARK,
    RANGES,
    Objects,
    at_once,
    explaining,
)
from det_jupyter.storage.buckets.opening import open_bucket
from det_jupyter.storage.buckets.probes import PROBE, put_probe, remove_probes
from det_jupyter.storage.contract import METADATA_FILE

_MOST_NAMED = 3


@dataclass(slots=True)
class _Folder:
    """The objects below one name."""

    sizes: dict[str, int] = field(default_factory=dict)
    changed_at: float = 0.0

    @property
    def is_committed(self) -> bool:
        return METADATA_FILE in self.sizes

    @property
    def is_ours(self) -> bool:
        return any(name.startswith((MARK, LIST)) for name in self.sizes)


def scan(location: str) -> list[dict[str, Any]]:
    """Return the checkpoints at a location, with what is missing in them; see CheckpointFiles."""
    folders = _to_folders(_list(location))
    known = {name: each for name, each in sorted(folders.items()) if each.is_ours}

    def examine(name: str) -> dict[str, Any]:
        folder = known[name]
        return {
            "uuid": name,
            "num_bytes": sum(folder.sizes.values()),
            "stored_at": folder.changed_at,
            "problem": _find_problem(location, name, folder),
        }

    return at_once(RANGES, examine, known)


def _find_problem(location: str, name: str, folder: _Folder) -> str:
    if not folder.is_committed:
        return f"it has no {METADATA_FILE}: its upload or its deletion was broken off"
    try:
        files = Objects(location, name).read_lists(folder.sizes)
    except (ValueError, KeyError, TypeError):
        return "the list of its files is damaged"
    missing = [
        f"{file} ({folder.sizes.get(file, 0)} of {of['size']} bytes)"
        for file, of in files.items()
        if folder.sizes.get(file) != of["size"]
    ]
    return f"it is damaged: {listed(missing, most=_MOST_NAMED)}" if missing else ""


def sweep(location: str, age_s: float, remove: Collection[str]) -> list[dict[str, Any]]:
    """Return what killed uploads have left; see CheckpointStorage.sweep."""
    probe, now = put_probe(location)  # clocks may be off: the earlier time counts
    remove_probes(location, [probe])
    before = min(now, time.time()) - age_s
    uploads = PartUploads(location)
    by_folder: dict[str, list[Upload]] = defaultdict(list)
    with suppress(OSError):  # without that right, or an answer
        for upload in uploads.find():
            by_folder[upload.name.partition("/")[0]].append(upload)
    there = _list(location)
    found = []
    for name, folder in sorted(_to_folders(there).items()):
        parts = by_folder.get(name, [])
        left = _find_left(name, folder, uploads, parts)
        if left is not None and left["changed_at"] < before:
            found.append(left)
            if name in remove:
                _remove(location, name, before, uploads, parts)
    probes = [meta for meta in there if meta["path"].startswith(PROBE) and _at(meta) < before]
    if doomed := [meta["path"] for meta in probes if meta["path"] in remove]:
        remove_probes(location, doomed)
    return found + [_left(meta["path"], [meta["size"]], [_at(meta)]) for meta in probes]


def _find_left(
    name: str, folder: _Folder, uploads: PartUploads, parts: Collection[Upload]
) -> dict[str, Any] | None:
    """Return the objects without a commit, and the parts; None if there are none of ours."""
    if not folder.is_ours:
        return None
    try:
        measured = [uploads.parts(upload) for upload in parts]
    except OSError:  # without that right they may be those of a running upload
        return None
    sizes, times = [size for size, _ in measured], [at for _, at in measured]
    if not folder.is_committed:
        sizes += folder.sizes.values()
        times.append(folder.changed_at)
    return _left(name, sizes, times) if times else None


def _left(name: str, sizes: Collection[int], times: Collection[float]) -> dict[str, Any]:
    return {
        "name": name,
        "num_bytes": sum(sizes),
        "num_files": len(sizes),
        "changed_at": max(times),
    }


def _remove(
    location: str, name: str, before: float, uploads: PartUploads, parts: Iterable[Upload]
) -> None:
    """Remove what is left of a checkpoint, unless an upload of it was begun meanwhile."""
    now = _to_folders(_list(location, name)).get(name, _Folder())
    if now.is_committed or now.changed_at < before:
        with suppress(OSError):  # they may be gone
            for upload in parts:
                uploads.abort(upload)
        Objects(location, name).discard()


def _to_folders(listed: Iterable[dict[str, Any]]) -> dict[str, _Folder]:
    folders: dict[str, _Folder] = defaultdict(_Folder)
    for meta in listed:
        name, _, rest = meta["path"].partition("/")
        if rest:
            folder = folders[name]
            folder.sizes[rest] = meta["size"]
            folder.changed_at = max(folder.changed_at, _at(meta))
    return folders


def _at(meta: dict[str, Any]) -> float:
    return float(meta["last_modified"].timestamp())


def _list(location: str, folder: str = "") -> list[dict[str, Any]]:
    prefix = f"{folder}/" if folder else None
    with explaining(location, "list"):
        found = obstore.list(open_bucket(location), prefix)
        return [dict(meta) for some in found for meta in some]
