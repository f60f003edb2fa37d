"""A process's rank and sizes, read from a launcher's variables, Horovod, mpi4py or torch.

    field        torchrun            deepspeed            Open MPI, MPICH
    rank         RANK                RANK                 OMPI_COMM_WORLD_RANK, PMI_RANK
    size         WORLD_SIZE          WORLD_SIZE           OMPI_COMM_WORLD_SIZE, PMI_SIZE
    local_rank   LOCAL_RANK          LOCAL_RANK           ..._LOCAL_RANK, MPI_LOCALRANKID
    local_size   LOCAL_WORLD_SIZE    LOCAL_SIZE           ..._LOCAL_SIZE, MPI_LOCALNRANKS
    cross_rank   GROUP_RANK          CROSS_RANK           (counted from the others)
    cross_size   GROUP_WORLD_SIZE    CROSS_SIZE           (counted from the others)

Where deepspeed's names are not set, torchrun's are read; without GROUP_* there is one computer.
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
from det_jupyter.core.ranks.meeting import Exchanged
from det_jupyter.core.ranks.rank_info import FIELDS, RankInfo
from det_jupyter.errors import WaitTimeout

_contexts = count()  # numbers contexts, which all ranks make in the same order
Names = Mapping[str, Sequence[str]]  # by field: the variables that may contain it


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


def read_rank_info(variables: Mapping[str, str], names: Names, maker: str) -> RankInfo:
    """Return the rank and sizes in environment variables.

    Args:
        variables: The environment.
        names: By field, the variables that may contain it; the first that is set counts.
        maker: The program that sets them, for messages: "torchrun".

    Raises:
        ValueError: Some are missing, no integers or inconsistent; the message lists all problems.
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
    return RankInfo.of(found, called)


def _read(variables: Mapping[str, str], names: Names) -> tuple[dict[str, int], dict[str, str]]:
    """Return the integers that are set, and by field the problems with other values."""
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
    """Return the computer's index and count, if mpirun fills computers one by one (default)."""
    share = max(1, found["local_size"])
    return {"cross_rank": found["rank"] // share, "cross_size": -(-found["size"] // share)}


def find_mpi_info(variables: Mapping[str, str]) -> RankInfo | None:
    """Return the rank and sizes in mpirun's variables; None if this process has none of them.

    Raises:
        ValueError: Some are missing or wrong; the message lists all problems.
    """
    names = next((names for names in (_OPEN_MPI, _MPICH) if names["rank"][0] in variables), None)
    return None if names is None else read_rank_info(variables, names, "mpirun")


def read_horovod(hvd: Any) -> RankInfo:
    """Return the rank and sizes that a module of Horovod returns, such as `horovod.torch`.

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
    return RankInfo.of(found)


def gather_mpi(comm: Any) -> tuple[RankInfo, str, bytes]:
    """Return this process's rank and sizes, the address of rank 0's computer, and a new secret.

    Collective: address and secret are those of the communicator's rank 0, sent to all.

    Args:
        comm: A communicator of mpi4py; None: COMM_WORLD.

    Raises:
        ValueError: mpi4py is not installed.
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
    info = RankInfo(
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
    return info, address, secret


def _own_address() -> str:
    """Return the address by which other computers reach this one."""
    name = socket.gethostname()
    with suppress(OSError):
        address = socket.gethostbyname(name)
        if not address.startswith("127."):  # Debian maps the computer's own name to 127.0.1.1
            return address
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("192.0.2.1", 9))  # sends nothing; chooses the interface for other networks
        return str(sock.getsockname()[0])
    return name


def check_group(info: RankInfo) -> None:
    """Check that torch's process group, if there is one, has the rank and size of `info`.

    Raises:
        ValueError: It has others.
    """
    if "torch" not in sys.modules:
        return
    import torch.distributed as dist

    if not dist.is_initialized():
        return
    if (dist.get_rank(), dist.get_world_size()) != (info.rank, info.size):
        raise ValueError(
            f"distributed: torch's process group has rank {dist.get_rank()} of "
            f"{dist.get_world_size()}, but RANK is {info.rank} and WORLD_SIZE {info.size}"
        )


def exchange_by_group(info: RankInfo, timeout_s: float) -> Exchanged | None:
    """Return a secret and a free port that the chief sends through the store of torch's group.

    Collective. None without a process group of that size. Others can read the secret if they can
    read the store; that of torchrun answers every program that reaches its port.

    Raises:
        WaitTimeout: The chief has not called this.
    """
    if "torch" not in sys.modules:  # without torch there is no process group
        return None
    import torch.distributed as dist  # waits if another thread is importing it

    if not dist.is_initialized() or dist.get_world_size() != info.size:
        return None
    store = dist.distributed_c10d._get_default_store()
    key = f"det_jupyter/ranks/{next(_contexts)}"
    if info.rank == 0:
        store.set(key, f"{secrets.token_hex(32)} {free_port('')}")
    else:
        try:
            store.wait([key], timedelta(seconds=timeout_s))
        except RuntimeError as error:  # the class depends on the kind of store
            if "timeout" not in str(error).lower():
                raise
            raise WaitTimeout(
                f"distributed: rank 0 of {info.size} has not made its DistributedContext within "
                f"{timeout_s:g} s; rank {info.rank} waits for it in the store of torch's process "
                "group: all ranks have to make theirs after init_process_group, or all before"
            ) from None
    secret, port = store.get(key).decode().split()
    return Exchanged(bytes.fromhex(secret), int(port))
