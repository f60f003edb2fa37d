"""A process's place among the ranks, and whether the places of all of them fit together. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

FIELDS = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
_PAIRS = tuple(zip(FIELDS[::2], FIELDS[1::2], strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Ranks and sizes of one process; DistributedContext says what each is."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    cross_rank: int = 0
    cross_size: int = 1

    @classmethod
    def of(cls, given: Mapping[str, int | None], names: Mapping[str, str] | None = None) -> Place:
        """Return the place of these six numbers, or that of a single process if all are None.

        Args:
            given: By the names in FIELDS.
            names: What the user calls them, for messages.

        Raises:
            ValueError: Some are missing or do not fit; the message has all problems.
        """
        called = {field: (names or {}).get(field, field) for field in FIELDS}
        if all(value is None for value in given.values()):
            return cls()
        missing = [called[name] for name, value in given.items() if value is None]
        if missing:
            are = "is" if len(missing) == 1 else "are"
            raise ValueError(
                f"distributed: {', '.join(missing)} {are} missing; give all of "
                f"{', '.join(called.values())}, or none of them for a single process"
            )
        values = {name: value for name, value in given.items() if value is not None}
        problems = [
            f"{called[name]}: got {value!r}, expected an integer"
            for name, value in values.items()
            if not isinstance(value, int) or isinstance(value, bool)
        ] or _misfits(values, called)
        if problems:
            raise ValueError("distributed: " + "; ".join(problems))
        return cls(**values)

    def alone(self) -> Place:
        """Return the place among the ranks of this computer only."""
        index, size = self.local_rank, self.local_size
        return Place(rank=index, size=size, local_rank=index, local_size=size)


def name_ranks(ranks: Sequence[int]) -> str:
    """Return the ranks as the beginning of a sentence.

    >>> name_ranks([3]), name_ranks([2, 3])
    ('rank 3', 'ranks 2, 3')
    """
    return f"rank{'s' if len(ranks) != 1 else ''} {', '.join(str(rank) for rank in ranks)}"


def are_late(ranks: Sequence[int], size: int, where: str) -> str:
    """Return a sentence on ranks that are waited for, without its end.

    >>> are_late([2, 3], 4, "allgather number 7")
    'distributed: ranks 2, 3 of 4 have not come to allgather number 7'
    """
    have = "has" if len(ranks) == 1 else "have"
    return f"distributed: {name_ranks(ranks)} of {size} {have} not come to {where}"


def _misfits(values: Mapping[str, int], called: Mapping[str, str]) -> list[str]:
    problems = []
    for index, size in _PAIRS:
        if values[size] < 1:
            problems.append(f"{called[size]}: got {values[size]}, expected at least 1")
        elif not 0 <= values[index] < values[size]:
            problems.append(
                f"{called[index]}: got {values[index]}, expected 0 to {values[size] - 1}, since "
                f"{called[size]} is {values[size]}"
            )
    for part in ("local_size", "cross_size"):
        if values[part] > values["size"]:
            problems.append(
                f"{called[part]}: got {values[part]}, expected at most {called['size']}, "
                f"{values['size']}"
            )
    return problems


def find_conflicts(members: Sequence[tuple[Place, str]]) -> list[str]:
    """Return what does not fit among these processes; local places only once all have come."""
    sizes = {place.size for place, _ in members}
    if len(sizes) > 1:
        return [
            "the processes were given different sizes: "
            + ", ".join(f"rank {place.rank} ({name}) {place.size}" for place, name in members)
        ]
    by_rank: dict[int, list[str]] = {}
    for place, name in members:
        by_rank.setdefault(place.rank, []).append(name)
    twice = [
        f"rank {rank} was given to {len(names)} processes: {' and '.join(names)}"
        for rank, names in sorted(by_rank.items())
        if len(names) > 1
    ]
    return twice or (_local_conflicts(members) if {len(members)} == sizes else [])


def _local_conflicts(members: Sequence[tuple[Place, str]]) -> list[str]:
    computers = {place.cross_rank for place, _ in members}
    sharing = Counter(place.cross_rank for place, _ in members)
    locals_ = Counter((place.cross_rank, place.local_rank) for place, _ in members)
    problems = []
    for place, name in sorted(members, key=lambda member: member[0].rank):
        name = f"rank {place.rank} ({name})"
        if place.cross_size != len(computers):
            problems.append(
                f"{name} was given cross_size {place.cross_size}, but the ranks have "
                f"{len(computers)} different values of cross_rank"
            )
        if place.local_size != sharing[place.cross_rank]:
            problems.append(
                f"{name} was given local_size {place.local_size}, but "
                f"{sharing[place.cross_rank]} have cross_rank {place.cross_rank}"
            )
        if locals_[place.cross_rank, place.local_rank] > 1:
            problems.append(
                f"{name} shares local_rank {place.local_rank} with another rank of cross_rank "
                f"{place.cross_rank}"
            )
    return problems
