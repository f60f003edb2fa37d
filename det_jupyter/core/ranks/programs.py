"""A process's place by what has started it: a launcher's variables, Horovod, mpi4py, torch.


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

import secrets
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import count
from typing import Any

from det_jupyter.contract.host.ports import free_port
from det_jupyter.core.ranks.meeting import Drawn
from det_jupyter.core.ranks.place import FIELDS, Place
from det_jupyter.errors import WaitTimeout

_contexts = count()  # all ranks make theirs in the same order
Names = Mapping[str, Sequence[str]]  # of a field: the variables that may hold it


def _names(*options: str) -> Names:
    return {field: names.split() for field, names in zip(FIELDS, options, strict=False)}


TORCHRUN = _names(
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"
)
DEEPSPEED = _names(
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_SIZE LOCAL_WORLD_SIZE",
    "CROSS_RANK GROUP_RANK",
    "CROSS_SIZE GROUP_WORLD_SIZE",
)
_OPEN_MPI = _names(*(f"OMPI_COMM_WORLD_{name.upper()}" for name in FIELDS[:4]))
_MPICH = _names("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")


def read_place(variables: Mapping[str, str], names: Names, maker: str) -> Place:
    """Return the place by the variables.

    Args:
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


def _set_name(variables: Mapping[str, str], options: Sequence[str]) -> str:
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
    names = next((names for names in (_OPEN_MPI, _MPICH) if names["rank"][0] in variables), None)
    return None if names is None else read_place(variables, names, "mpirun")


def read_horovod(hvd: Any) -> Place:
    """Return the place of this process by an initialized module of Horovod.

    Raises:
        ValueError: It is not such a module, or `hvd.init()` was not called.
    """
    missing = [name for name in FIELDS if not callable(getattr(hvd, name, None))]
    if missing:
        raise ValueError(
            f"from_horovod: got {hvd!r}, which has no {', '.join(missing)}; pass the module that "
            "was initialized (import horovod.torch as hvd; hvd.init(); from_horovod(hvd))"
        )
    try:
        found = {name: int(getattr(hvd, name)()) for name in FIELDS}
    except (ValueError, TypeError) as error:
        raise ValueError(f"from_horovod: {error}; call hvd.init() first") from error
    return Place.of(found)


def gather_mpi(comm: Any) -> tuple[Place, str, bytes]:
    """Return the place of this process, the address of rank 0's computer, and a new secret.

    Collective over the communicator, which has brought them to all its processes.

    Args:
        comm: Of mpi4py; None for COMM_WORLD.

    Raises:
        ValueError: There is no mpi4py, and no communicator.
    """
    try:
        from mpi4py import MPI  # type: ignore[import-not-found,unused-ignore]  # optional
    except ImportError:
        raise ValueError(
            "from_mpi: mpirun has not started this process (neither OMPI_COMM_WORLD_RANK nor "
            "PMI_RANK is set), and mpi4py is not installed. Start it with mpirun, or give rank, "
            "size, local_rank, local_size, cross_rank and cross_size to DistributedContext"
        ) from None
    comm = MPI.COMM_WORLD if comm is None else comm
    rank, size = comm.Get_rank(), comm.Get_size()
    neighbours = comm.Split_type(MPI.COMM_TYPE_SHARED)
    firsts: list[int] = comm.allgather(neighbours.bcast(rank, root=0))  # one rank per computer
    computers = sorted(set(firsts))
    place = Place(
        rank=rank,
        size=size,
        local_rank=neighbours.Get_rank(),
        local_size=neighbours.Get_size(),
        cross_rank=computers.index(firsts[rank]),
        cross_size=len(computers),
    )
    neighbours.Free()
    offer = (_own_address(), secrets.token_bytes(32)) if rank == 0 else None
    address, secret = comm.bcast(offer, root=0)
    return place, address, secret


def _own_address() -> str:
    """Return this computer's address as others reach it."""
    name = socket.gethostname()
    with suppress(OSError):
        address = socket.gethostbyname(name)
        if not address.startswith("127."):  # as Debian has it for the computer's own name
            return address
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("192.0.2.1", 9))  # sends nothing; chooses the interface for other networks
        return str(sock.getsockname()[0])
    return name


def check_group(place: Place) -> None:
    """Refuse torchrun's variables if torch's process group contradicts them.

    Raises:
        ValueError: It has another rank or size.
    """
    if "torch" not in sys.modules:
        return
    import torch.distributed as dist

    if not dist.is_initialized():
        return
    if (dist.get_rank(), dist.get_world_size()) != (place.rank, place.size):
        raise ValueError(
            f"distributed: torch's process group has rank {dist.get_rank()} of "
            f"{dist.get_world_size()}, but RANK is {place.rank} and WORLD_SIZE {place.size}"
        )


def draw_by_group(place: Place, timeout_s: float) -> Drawn | None:
    """Return a word and a free port of the chief's, which torch's group brings to all ranks.

    None without a group of that size. Collective: its store brings them, and they are as secret as
    that store: torchrun's answers every program that reaches its port.

    Raises:
        WaitTimeout: The chief has not come.
    """
    if "torch" not in sys.modules:  # what has made a group has loaded it
        return None
    import torch.distributed as dist  # waits, if a thread is loading it

    if not dist.is_initialized() or dist.get_world_size() != place.size:
        return None
    store = dist.distributed_c10d._get_default_store()
    key = f"det_jupyter/ranks/{next(_contexts)}"
    if place.rank == 0:
        store.set(key, f"{secrets.token_hex(32)} {free_port('')}")
    else:
        try:
            store.wait([key], timedelta(seconds=timeout_s))
        except RuntimeError as error:  # of each kind of store another one
            if "timeout" not in str(error).lower():
                raise
            raise WaitTimeout(
                f"distributed: rank 0 of {place.size} has not made its DistributedContext within "
                f"{timeout_s:g} s; rank {place.rank} waits for it in the store of torch's process "
                "group: all ranks have to make theirs after init_process_group, or all before"
            ) from None
    word, port = store.get(key).decode().split()
    return Drawn(bytes.fromhex(word), int(port))
