"""Combines the ranks' parts of one checkpoint: the union of files and of metadata. Pure.

the same file of several ranks      its content must be the same; the lowest rank stores it
a file here, a folder there         an error
the same folder                     the union of the files in it
metadata                            merged, also in nested dicts; different values are an error
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from det_jupyter.contract.values.text import ranks_text
from det_jupyter.core.folders import FolderListing
from det_jupyter.errors import PartsConflict

_MAX_PROBLEMS = 10  # problems in a message

Digests = Mapping[str, str]  # file -> digest of its content


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The part of a checkpoint that one rank would store.

    Args:
        rank: The rank.
        found: Its files and folders.
        source: Identifies the folder (computer, device, inode) if all of it is stored: several
            ranks may name the same folder, which is stored once. None: only this rank has it.
        size_bytes: The size of its files.
        is_none: Whether the rank has called without a folder.
        metadata: Its metadata.
    """

    rank: int
    found: FolderListing = field(default_factory=FolderListing)
    source: tuple[Any, ...] | None = None
    size_bytes: int = 0
    is_none: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)


def without_duplicates(parts: Sequence[Part]) -> list[Part]:
    """Return the parts, without the files of folders that a lower rank has too."""
    seen: set[tuple[Any, ...]] = set()
    kept = []
    for part in parts:
        is_copy = part.source in seen
        kept.append(
            replace(part, found=FolderListing(), source=None, size_bytes=0) if is_copy else part
        )
        if part.source is not None:
            seen.add(part.source)
    return kept


def files_of_several_ranks(parts: Iterable[Part]) -> set[str]:
    """Return the files that several ranks have, whose contents have to be compared."""
    seen: set[str] = set()
    shared: set[str] = set()
    for part in parts:
        shared |= seen & part.found.files
        seen |= part.found.files
    return shared


def find_conflicts(parts: Sequence[Part], digests: Sequence[Digests]) -> list[str]:
    """Return a line for each path at which the ranks' files contradict each other.

    Args:
        parts: The parts of all ranks.
        digests: For each rank, the digests of those of its files that other ranks have too.
    """
    problems = []
    folders: dict[str, set[int]] = {}
    for part in parts:
        found = part.found
        for folder in found.folders | {p for file in found.files for p in _parent_folders(file)}:
            folders.setdefault(folder, set()).add(part.rank)
    for name in sorted(set().union(*(part.found.files for part in parts))):
        ranks = [part.rank for part in parts if name in part.found.files]
        if name in folders:
            problems.append(
                f"{name}: a file of {ranks_text(ranks)}, "
                f"and a folder of {ranks_text(folders[name])}"
            )
        if len({own[name] for own in digests if name in own}) > 1:
            problems.append(f"{name}: different files of {ranks_text(ranks)}")
    return problems


def files_to_store(parts: Sequence[Part], rank: int) -> FolderListing:
    """Return what a rank has to store: its folders, and the files that no lower rank has."""
    mine = parts[rank].found
    lower = (part.found.files for part in parts[:rank])
    return FolderListing(mine.files.difference(*lower), mine.folders)


def merge_metadata(parts: Iterable[Part]) -> tuple[dict[str, Any], list[str]]:
    """Return the merged metadata of all ranks, and a line for each contradiction."""
    merged: dict[str, Any] = {}
    owners: dict[str, int] = {}
    problems: list[str] = []
    for part in parts:
        _merge(merged, part.metadata, (), part.rank, owners, problems)
    return merged, problems


def _merge(
    into: dict[str, Any],
    given: Mapping[str, Any],
    path: tuple[str, ...],
    rank: int,
    owners: dict[str, int],
    problems: list[str],
) -> None:
    for key, value in given.items():
        where = ".".join((*path, key))
        is_new = key not in into
        if isinstance(value, Mapping) and (is_new or isinstance(into[key], dict)):
            _merge(into.setdefault(key, {}), value, (*path, key), rank, owners, problems)
        elif is_new:
            into[key] = value
        elif into[key] != value:
            first = owners.get(where, 0)
            problems.append(
                f"metadata {where}: {into[key]!r:.60} of rank {first}, "
                f"{value!r:.60} of rank {rank}"
            )
        owners.setdefault(where, rank)


def _parent_folders(file: str) -> Iterable[str]:
    names = file.split("/")
    return ("/".join(names[:end]) for end in range(1, len(names)))


def refuse(call: str, problems: Sequence[str]) -> None:
    """Raise PartsConflict, with a line for each of the first ten problems, if there are any.

    Args:
        call: The method that the user has called.
        problems: The problems.
    """
    if problems:
        rest = len(problems) - _MAX_PROBLEMS
        more = [f"and {rest} more"] if rest > 0 else []
        what = f"{call}: the ranks' parts cannot be one checkpoint:"
        raise PartsConflict("\n  ".join([what, *problems[:_MAX_PROBLEMS], *more]))
