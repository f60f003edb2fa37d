"""A process's rank and sizes, and whether those of all processes of a job are consistent. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

FIELDS = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
_PAIRS = tuple(zip(FIELDS[::2], FIELDS[1::2], strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class RankInfo:
    """Ranks and sizes of one process; the fields are those of DistributedContext."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    cross_rank: int = 0
    cross_size: int = 1

    @classmethod
    def of(
        cls, given: Mapping[str, int | None], names: Mapping[str, str] | None = None
    ) -> RankInfo:
        """Check the six numbers; if all are None, return the values of a single process.

        Args:
            given: The numbers by the names in FIELDS.
            names: For messages: what a field is called where it was set, such as WORLD_SIZE.

        Raises:
            ValueError: Some are missing, of another type, or inconsistent; the message lists all
                problems.
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
        ] or _range_problems(values, called)
        if problems:
            raise ValueError("distributed: " + "; ".join(problems))
        return cls(**values)

    def on_this_computer(self) -> RankInfo:
        """Return the rank and size in a job of this computer's ranks only."""
        index, size = self.local_rank, self.local_size
        return RankInfo(rank=index, size=size, local_rank=index, local_size=size)


def ranks_text(ranks: Sequence[int]) -> str:
    """Return the subject of a sentence about these ranks.

    >>> ranks_text([3]), ranks_text([2, 3])
    ('rank 3', 'ranks 2, 3')
    """
    return f"rank{'s' if len(ranks) != 1 else ''} {', '.join(str(rank) for rank in ranks)}"


def late_text(ranks: Sequence[int], size: int, where: str) -> str:
    """Return the beginning of a message about ranks that have not joined or called yet.

    >>> late_text([2, 3], 4, "allgather number 7")
    'distributed: ranks 2, 3 of 4 have not come to allgather number 7'
    """
    have = "has" if len(ranks) == 1 else "have"
    return f"distributed: {ranks_text(ranks)} of {size} {have} not come to {where}"


def _range_problems(values: Mapping[str, int], called: Mapping[str, str]) -> list[str]:
    problems = []
    for index, size in _PAIRS:
        if values[size] < 1:
            problems.append(f"{called[size]}: got {values[size]}, expected at least 1")
        elif not 0 <= values[index] < values[size]:
            problems.append(
                f"{called[index]}: got {values[index]}, expected 0 to {values[size] - 1}, since "
                f"{called[size]} is {values[size]}"
            )
    for field in ("local_size", "cross_size"):
        if values[field] > values["size"]:
            problems.append(
                f"{called[field]}: got {values[field]}, expected at most {called['size']}, "
                f"{values['size']}"
            )
    return problems


def find_conflicts(members: Sequence[tuple[RankInfo, str]]) -> list[str]:
    """Return the contradictions between these processes, a sentence each.

    `local_*` and `cross_*` are compared only if the processes are all of the job.

    Args:
        members: Ranks and sizes of each process, and its name for messages.
    """
    sizes = {info.size for info, _ in members}
    if len(sizes) > 1:
        return [
            "the processes were given different sizes: "
            + ", ".join(f"rank {info.rank} ({name}) {info.size}" for info, name in members)
        ]
    by_rank: dict[int, list[str]] = {}
    for info, name in members:
        by_rank.setdefault(info.rank, []).append(name)
    twice = [
        f"rank {rank} was given to {len(names)} processes: {' and '.join(names)}"
        for rank, names in sorted(by_rank.items())
        if len(names) > 1
    ]
    return twice or (_local_conflicts(members) if {len(members)} == sizes else [])


def _local_conflicts(members: Sequence[tuple[RankInfo, str]]) -> list[str]:
    computers = {info.cross_rank for info, _ in members}
    sharing = Counter(info.cross_rank for info, _ in members)
    locals_ = Counter((info.cross_rank, info.local_rank) for info, _ in members)
    problems = []
    for info, name in sorted(members, key=lambda member: member[0].rank):
        name = f"rank {info.rank} ({name})"
        if info.cross_size != len(computers):
            problems.append(
                f"{name} was given cross_size {info.cross_size}, but the ranks have "
                f"{len(computers)} different values of cross_rank"
            )
        if info.local_size != sharing[info.cross_rank]:
            problems.append(
                f"{name} was given local_size {info.local_size}, but "
                f"{sharing[info.cross_rank]} have cross_rank {info.cross_rank}"
            )
        if locals_[info.cross_rank, info.local_rank] > 1:
            problems.append(
                f"{name} shares local_rank {info.local_rank} with another rank of cross_rank "
                f"{info.cross_rank}"
            )
    return problems
