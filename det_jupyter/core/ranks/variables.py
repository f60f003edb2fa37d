"""Places by the environment variables that launchers set.

    field        torchrun            deepspeed            Open MPI, MPICH
    rank         RANK                RANK                 OMPI_COMM_WORLD_RANK, PMI_RANK
    size         WORLD_SIZE          WORLD_SIZE           OMPI_COMM_WORLD_SIZE, PMI_SIZE
    local_rank   LOCAL_RANK          LOCAL_RANK           ..._LOCAL_RANK, MPI_LOCALRANKID
    local_size   LOCAL_WORLD_SIZE    LOCAL_SIZE           ..._LOCAL_SIZE, MPI_LOCALNRANKS
    cross_rank   GROUP_RANK          CROSS_RANK           (counted from the others)
    cross_size   GROUP_WORLD_SIZE    CROSS_SIZE           (counted from the others)

deepspeed's names fall back to torchrun's; torchrun's last two to one computer.
"""

from __future__ import annotations

from collections.abc import Mapping

from det_jupyter.core.ranks.place import Place

Names = Mapping[str, tuple[str, ...]]

TORCHRUN: Names = {
    "rank": ("RANK",),
    "size": ("WORLD_SIZE",),
    "local_rank": ("LOCAL_RANK",),
    "local_size": ("LOCAL_WORLD_SIZE",),
    "cross_rank": ("GROUP_RANK",),
    "cross_size": ("GROUP_WORLD_SIZE",),
}
DEEPSPEED: Names = {
    "rank": ("RANK",),
    "size": ("WORLD_SIZE",),
    "local_rank": ("LOCAL_RANK",),
    "local_size": ("LOCAL_SIZE", "LOCAL_WORLD_SIZE"),
    "cross_rank": ("CROSS_RANK", "GROUP_RANK"),
    "cross_size": ("CROSS_SIZE", "GROUP_WORLD_SIZE"),
}
_MPI: tuple[Names, ...] = (
    {
        "rank": ("OMPI_COMM_WORLD_RANK",),
        "size": ("OMPI_COMM_WORLD_SIZE",),
        "local_rank": ("OMPI_COMM_WORLD_LOCAL_RANK",),
        "local_size": ("OMPI_COMM_WORLD_LOCAL_SIZE",),
    },
    {
        "rank": ("PMI_RANK",),
        "size": ("PMI_SIZE",),
        "local_rank": ("MPI_LOCALRANKID",),
        "local_size": ("MPI_LOCALNRANKS",),
    },
)


def read_place(variables: Mapping[str, str], names: Names, maker: str) -> Place:
    """Return the place by the variables.

    Args:
        variables: The environment.
        names: Of each field, the variables that may hold it, the first that is set counts.
        maker: Who sets them, for messages: "torchrun".

    Raises:
        ValueError: Some are missing, no integers or do not fit; the message has all problems.
    """
    found, problems = _read(variables, names)
    if {"cross_rank", "cross_size"} <= names.keys() and found.get("local_size") == found.get(
        "size"
    ):
        found.setdefault("cross_rank", 0)
        found.setdefault("cross_size", 1)
    elif not {"cross_rank", "cross_size"} & names.keys() and len(found) == len(names):
        found |= _count_computers(found)
    missing = [" or ".join(names[field]) for field in names if field not in found | dict(problems)]
    if missing:
        problems["missing"] = f"not set: {', '.join(missing)}"
    if problems:
        raise ValueError(
            f"distributed: the environment variables that {maker} sets are not as needed: "
            + "; ".join(problems.values())
            + f". Start this program with {maker}, or give rank, size, local_rank, local_size, "
            "cross_rank and cross_size to DistributedContext"
        )
    called = {field: _set_name(variables, options) for field, options in names.items()}
    return Place.of(found, called)


def _read(variables: Mapping[str, str], names: Names) -> tuple[dict[str, int], dict[str, str]]:
    """Return the integers that are set, and by field what is wrong with others."""
    found, problems = {}, {}
    for field, options in names.items():
        name = _set_name(variables, options)
        if name not in variables:
            continue
        try:
            found[field] = int(variables[name])
        except ValueError:
            problems[field] = f"{name}: got {variables[name]!r}, expected an integer"
    return found, problems


def _set_name(variables: Mapping[str, str], options: tuple[str, ...]) -> str:
    return next((name for name in options if name in variables), options[0])


def _count_computers(found: Mapping[str, int]) -> dict[str, int]:
    """Return the computer's number if mpirun fills one computer after the other (its default)."""
    share = max(1, found["local_size"])
    return {"cross_rank": found["rank"] // share, "cross_size": -(-found["size"] // share)}


def find_mpi_place(variables: Mapping[str, str]) -> Place | None:
    """Return the place by the variables of mpirun; None if it has not started this process.

    Raises:
        ValueError: Some are missing or wrong; the message has all problems.
    """
    names = next((names for names in _MPI if names["rank"][0] in variables), None)
    return None if names is None else read_place(variables, names, "mpirun")
