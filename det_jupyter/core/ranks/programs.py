"""Places by Horovod and mpi4py, which need not be installed."""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress
from typing import Any

from det_jupyter.core.ranks.place import Place


def read_horovod(hvd: Any) -> Place:
    """Return the place of this process by an initialized module of Horovod.

    Raises:
        ValueError: It is not such a module, or `hvd.init()` was not called.
    """
    fields = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
    missing = [name for name in fields if not callable(getattr(hvd, name, None))]
    if missing:
        raise ValueError(
            f"from_horovod: got {hvd!r}, which has no {', '.join(missing)}; pass the module that "
            "was initialized (import horovod.torch as hvd; hvd.init(); from_horovod(hvd))"
        )
    try:
        return Place.of({name: int(getattr(hvd, name)()) for name in fields})
    except (ValueError, TypeError) as error:
        if str(error).startswith("distributed:"):
            raise
        raise ValueError(f"from_horovod: {error}; call hvd.init() first") from error


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
