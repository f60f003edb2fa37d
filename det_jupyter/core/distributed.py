"""Ranks and sizes of a process, and collectives on picklable values.

The collectives use sockets of their own (ranks/) instead of torch's process group: they work
without one, and do not interfere with the all-reduce of gradients.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast

from det_jupyter.contract.host.rundir import STORE_VARIABLE
from det_jupyter.core.ranks import (
    DEEPSPEED,
    FIELDS,
    PORT,
    TORCHRUN,
    Meeting,
    RankInfo,
    StarExchange,
    check_group,
    choose_meeting,
    connect,
    exchange_by_group,
    find_mpi_info,
    gather_mpi,
    read_horovod,
    read_rank_info,
)

if TYPE_CHECKING:  # torch takes seconds to import, and scripts may not need it
    import torch

T = TypeVar("T")

# A rank that ends closes its connection, and collectives raise at once. This timeout is only for
# deadlocks: the chief may evaluate or write a checkpoint for hours while the others wait.
CONTROL_TIMEOUT = timedelta(days=1)
_JOIN_TIMEOUT_S = 300.0
_PULL_PORT = 12376  # Determined's


class DistributedContext:
    """Ranks, sizes and collectives. All ranks must call collectives, in the same order.

    Without arguments it is the context of a single process. With them the constructor is
    collective: it returns once all ranks are connected. Create it after torch's process group on
    all ranks, or before it on all. With a process group, its store identifies the ranks that
    belong together; without one, the launcher's name of the run does, or the process that started
    the ranks.

    Ranks of an experiment, or of one computer, meet at a socket that only their user can reach.
    Ranks on several computers meet at `chief_ip` and a port: values are unpickled, so either trust
    all who can reach that port, or set DET_JUPYTER_SECRET to the same long random word on all
    computers.

    A process may create several contexts, if all ranks create them in the same order.

    Args:
        rank: Index of this process in the job; the chief is rank 0.
        size: Number of processes of the job.
        local_rank: Index on this computer; the local chief is 0.
        local_size: Number of processes on this computer.
        cross_rank: Index of this computer (a simulated agent counts as one).
        cross_size: Number of computers.
        chief_ip: Address of the computer of rank 0; needed if `local_size` is not `size`.
        pub_port: Port there; by default 12360, or a free one that is sent to all ranks through
            torch's process group. Jobs that one process (a shell, say) starts on a computer need
            different ones.
        pull_port: Not used; accepted because Determined has it.
        port_offset: Added to `pub_port`.
        force_tcp: Whether to connect over a port even on one computer (of the loopback interface
            without `chief_ip`).
        join_timeout_s: How long to wait until all ranks are connected.
        collective_timeout_s: How long a collective waits for ranks that are running.
        store: File in a 0700 folder, beside which the socket is; overrides DET_JUPYTER_STORE.
        secret: Shared by these ranks only; overrides DET_JUPYTER_SECRET.

    Raises:
        ValueError: Arguments are missing, or contradict each other or those of other ranks.
        WaitTimeout: Ranks have not connected in time; the message names them.
        PeerRefused: This process and the process that it has connected to do not have the same
            secret or job.
        LaunchError: A running job uses the same address.
    """

    def __init__(
        self,
        *,
        rank: int | None = None,
        size: int | None = None,
        local_rank: int | None = None,
        local_size: int | None = None,
        cross_rank: int | None = None,
        cross_size: int | None = None,
        chief_ip: str | None = None,
        pub_port: int | None = None,
        pull_port: int = _PULL_PORT,
        port_offset: int = 0,
        force_tcp: bool = False,
        join_timeout_s: float = _JOIN_TIMEOUT_S,
        collective_timeout_s: float = CONTROL_TIMEOUT.total_seconds(),
        store: str | None = None,
        secret: bytes | None = None,
    ) -> None:
        given = (rank, size, local_rank, local_size, cross_rank, cross_size)
        info = RankInfo.of(dict(zip(FIELDS, given, strict=True)))
        self.rank = info.rank
        self.size = info.size
        self.local_rank = info.local_rank
        self.local_size = info.local_size
        self.cross_rank = info.cross_rank
        self.cross_size = info.cross_size
        self._everyone: StarExchange | None = None
        self._neighbours: StarExchange | None = None
        if info.size > 1:
            if pub_port is None and port_offset:
                pub_port = PORT
            is_named = store or secret or os.environ.get(STORE_VARIABLE)
            meeting = choose_meeting(
                info,
                os.environ,
                chief_ip=chief_ip,
                port=None if pub_port is None else pub_port + port_offset,
                force_tcp=force_tcp,
                store=store,
                secret=secret,
                exchanged=None if is_named else exchange_by_group(info, join_timeout_s),
            )
            self._connect(info, meeting, join_timeout_s, collective_timeout_s)

    def _connect(self, info: RankInfo, meeting: Meeting, join_s: float, wait_s: float) -> None:
        everyone = connect(meeting, info, join_s=join_s, wait_s=wait_s)
        self._everyone = self._neighbours = everyone
        if info.local_size == info.size:
            return
        self._neighbours = None
        try:
            word = everyone.broadcast(secrets.token_hex(8))
            homes = everyone.allgather(info.cross_rank)
            ranks = [rank for rank, home in enumerate(homes) if home == info.cross_rank]
            if info.local_size > 1:
                local = meeting.local(info.cross_rank, word)
                self._neighbours = connect(
                    local, info.on_this_computer(), join_s=join_s, wait_s=wait_s, ranks=ranks
                )
        except BaseException:  # an interrupt too: the other ranks would wait
            everyone.close()
            raise

    @classmethod
    def from_torch_distributed(cls, chief_ip: str | None = None, **options: Any) -> Self:
        """Return the context of a process from torchrun's variables.

        Collective: all ranks must call it, all after `torch.distributed.init_process_group`, or
        all without it.

        Args:
            chief_ip: Address of the computer of rank 0; by default DET_CHIEF_IP or MASTER_ADDR.
            **options: Options of the constructor: store, secret, pub_port, join_timeout_s, ...

        Raises:
            ValueError: Variables are missing or wrong: all of them are named.
            PeerRefused: A rank does not have the secret.
        """
        info = read_rank_info(os.environ, TORCHRUN, "torchrun")
        if info.size > 1:
            check_group(info)
        return cls._of(info, chief_ip, **options)

    @classmethod
    def from_deepspeed(cls, chief_ip: str | None = None, **limits: float) -> Self:
        """Return the context of a process from the variables of deepspeed's launcher. Collective.

        It reads RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_SIZE, CROSS_RANK and CROSS_SIZE, or torchrun's
        names where those are not set.

        Args:
            chief_ip: Address of the computer of rank 0; by default DET_CHIEF_IP or MASTER_ADDR.
            **limits: join_timeout_s, collective_timeout_s.

        Raises:
            ValueError: Variables are missing or wrong: all of them are named.
        """
        return cls._of(read_rank_info(os.environ, DEEPSPEED, "deepspeed"), chief_ip, **limits)

    @classmethod
    def from_horovod(cls, hvd: Any, chief_ip: str | None = None, **limits: float) -> Self:
        """Return the context of a process of Horovod. Collective; call it after `hvd.init()`.

        Args:
            hvd: The module that was initialized: `horovod.torch`, say.
            chief_ip: Address of the computer of rank 0; DET_CHIEF_IP else.
            **limits: join_timeout_s, collective_timeout_s.

        Raises:
            ValueError: It is not such a module, or was not initialized.
        """
        return cls._of(read_horovod(hvd), chief_ip, **limits)

    @classmethod
    def from_mpi(cls, comm: Any = None, *, chief_ip: str | None = None, **limits: float) -> Self:
        """Return the context of a process that mpirun has started. Collective.

        Args:
            comm: A communicator of mpi4py. By default the variables of Open MPI or MPICH are read,
                which needs no mpi4py; ranks then have to fill one computer after the other
                (mpirun's default). Without these variables it is mpi4py's COMM_WORLD.
            chief_ip: Address of the computer of rank 0; by default mpi4py's, if it is used.
            **limits: join_timeout_s, collective_timeout_s.

        Raises:
            ValueError: mpirun has not started this process, and no communicator is given.
        """
        info = None if comm is not None else find_mpi_info(os.environ)
        if info is not None:
            return cls._of(info, chief_ip, **limits)
        info, address, secret = gather_mpi(comm)
        return cls._of(info, chief_ip or address, secret=secret, **limits)

    @classmethod
    def _of(cls, info: RankInfo, chief_ip: str | None, **options: Any) -> Self:
        chief_ip = chief_ip or os.environ.get("DET_CHIEF_IP") or os.environ.get("MASTER_ADDR")
        return cls(chief_ip=chief_ip, **options, **asdict(info))

    @property
    def is_chief(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    def get_rank(self) -> int:
        return self.rank

    def get_local_rank(self) -> int:
        return self.local_rank

    def get_size(self) -> int:
        return self.size

    def get_num_agents(self) -> int:
        """Return the number of computers: `cross_size`."""
        return self.cross_size

    def gather(self, value: T) -> list[T] | None:
        """Return every rank's value, in the order of ranks, on the chief; None elsewhere."""
        return self._everyone.gather(value) if self._everyone else [value]

    def gather_local(self, value: T) -> list[T] | None:
        """Return the values of this computer's ranks on its local chief; None elsewhere."""
        return self._neighbours.gather(value) if self._neighbours else [value]

    def allgather(self, value: T) -> list[T]:
        """Return every rank's value, in the order of ranks, on all ranks."""
        return self._everyone.allgather(value) if self._everyone else [value]

    def allgather_local(self, value: T) -> list[T]:
        """Return the values of this computer's ranks, on each of them."""
        return self._neighbours.allgather(value) if self._neighbours else [value]

    def broadcast(self, value: T) -> T:
        """Return the chief's value on all ranks."""
        return cast("T", self._everyone.broadcast(value)) if self._everyone else value

    def broadcast_local(self, value: T) -> T:
        """Return the local chief's value on the ranks of this computer."""
        return cast("T", self._neighbours.broadcast(value)) if self._neighbours else value

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self._everyone:
            self._everyone.barrier()

    def reduce_(self, tensor: torch.Tensor, operation: Literal["sum", "max"]) -> torch.Tensor:
        """Replace the CPU tensor by the sum or maximum over all ranks, in place, and return it."""
        if self._everyone:
            self._everyone.reduce_(tensor, operation)
        return tensor

    def close(self) -> None:
        """Close the connections with other ranks; later collectives raise a RuntimeError."""
        for exchange in (self._everyone, self._neighbours):
            if exchange is not None:
                exchange.close()
