"""What several ranks put into one checkpoint: the union of their files and of their metadata.

    the same file of several ranks      the same content: the lowest rank stores it; else an error
    a file here, a folder there         an error
    the same folder                     the union of what is in it
    metadata                            merged, dicts in dicts too; different values are an error

Pure: ranks exchange what they have (`Offer`), and each computes the same plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from det_jupyter.core.folders import Listing

_MOST = 10  # conflicts in a message

Digests = Mapping[str, str]  # file -> digest of its content


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a rank has for a checkpoint.

    Args:
        source: Which folder it is, if all of it is offered: the same one may be another rank's
            too, and is stored once. None: it is this rank's alone.
    """

    rank: int
    found: Listing = field(default_factory=Listing)
    source: tuple[Any, ...] | None = None
    is_none: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)


def without_copies(offers: Sequence[Offer]) -> list[Offer]:
    """Return the offers, those of a folder that a lower rank offers too without files."""
    seen: set[tuple[Any, ...]] = set()
    kept = []
    for offer in offers:
        is_copy = offer.source in seen
        kept.append(replace(offer, found=Listing(), source=None) if is_copy else offer)
        if offer.source is not None:
            seen.add(offer.source)
    return kept


def shared_files(offers: Iterable[Offer]) -> set[str]:
    """Return the files that more than one rank has: their contents have to be compared."""
    seen: set[str] = set()
    shared: set[str] = set()
    for offer in offers:
        shared |= seen & offer.found.files
        seen |= offer.found.files
    return shared


def find_conflicts(offers: Sequence[Offer], digests: Sequence[Digests]) -> list[str]:
    """Return what of the files cannot be stored together, a line for each.

    Args:
        digests: Of all ranks: of those of its files that others have, too.
    """
    problems = []
    folders: dict[str, list[int]] = {}
    for offer in offers:
        found = offer.found
        for folder in found.folders | {p for file in found.files for p in _parents(file)}:
            folders.setdefault(folder, []).append(offer.rank)
    for name in sorted(set().union(*(offer.found.files for offer in offers))):
        ranks = [offer.rank for offer in offers if name in offer.found.files]
        if name in folders:
            problems.append(
                f"{name}: a file of {_ranks(ranks)}, and a folder of {_ranks(folders[name])}"
            )
        if len({own[name] for own in digests if name in own}) > 1:
            problems.append(f"{name}: different files of {_ranks(ranks)}")
    return problems


def stored_by(offers: Sequence[Offer], rank: int) -> Listing:
    """Return what this rank stores: its folders, and the files that no lower rank has."""
    mine = offers[rank].found
    lower = (offer.found.files for offer in offers[:rank])
    return Listing(mine.files.difference(*lower), mine.folders)


def merge_metadata(offers: Iterable[Offer]) -> tuple[dict[str, Any], list[str]]:
    """Return the metadata of all ranks in one, and what of it they disagree about."""
    merged: dict[str, Any] = {}
    owners: dict[str, int] = {}
    problems: list[str] = []
    for offer in offers:
        _merge(merged, offer.metadata, (), offer.rank, owners, problems)
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


def in_lines(what: str, problems: Sequence[str]) -> str:
    """Return a message with the problems, those that are many in part."""
    rest = len(problems) - _MOST
    more = [f"and {rest} more"] if rest > 0 else []
    return "\n  ".join([f"{what}:", *problems[:_MOST], *more])


def _parents(file: str) -> Iterable[str]:
    parts = file.split("/")
    return ("/".join(parts[:end]) for end in range(1, len(parts)))


def _ranks(ranks: Sequence[int]) -> str:
    unique = sorted(set(ranks))
    if len(unique) == 1:
        return f"rank {unique[0]}"
    return f"ranks {', '.join(map(str, unique[:-1]))} and {unique[-1]}"
