"""A rank's place among the ranks, and collectives on picklable values.

The collectives use a gloo group of their own: the values are small and on the CPU, and cannot
mix with the all-reduce of gradients. objects.py has the format of values.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Literal, NoReturn, TypeVar, cast

import torch
import torch.distributed as dist

from det_jupyter.core.objects import ObjectExchange, check_members
from det_jupyter.words import error_text

T = TypeVar("T")

# A dead rank is noticed at once, by its closed connection. This bounds only a deadlock, and the
# chief may evaluate or write a checkpoint for hours while the others wait.
CONTROL_TIMEOUT = timedelta(days=1)

_OPERATIONS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX}


class DistributedContext:
    """Ranks, sizes and collectives. All ranks must call collectives, in the same order.

    Args:
        rank: Index of this process in the job; the chief is rank 0.
        size: Number of processes of the job.
        local_rank: Index on this computer; the local chief is 0.
        local_size: Number of processes on this computer.
        cross_rank: Index of this computer (a simulated agent counts as one).
        cross_size: Number of computers.
        group: Gloo group of all ranks; None if there is one rank.
        local_group: Gloo group of this computer's ranks; None if it has one rank.
        secret: Known to the ranks of the gang only; empty under torchrun.
    """

    def __init__(
        self,
        *,
        rank: int = 0,
        size: int = 1,
        local_rank: int = 0,
        local_size: int = 1,
        cross_rank: int = 0,
        cross_size: int = 1,
        group: dist.ProcessGroup | None = None,
        local_group: dist.ProcessGroup | None = None,
        secret: bytes = b"",
    ) -> None:
        if size > 1 and group is None:
            raise ValueError(f"distributed: {size} ranks need a process group, got none")
        self.rank = rank
        self.size = size
        self.local_rank = local_rank
        self.local_size = local_size
        self.cross_rank = cross_rank
        self.cross_size = cross_size
        self._groups = {made for made in (group, local_group) if made is not None}
        self._everyone = _exchange(group, size, "all", secret)
        self._neighbours = _exchange(local_group, local_size, "local", secret)

    @classmethod
    def from_torch_distributed(cls, secret: bytes = b"") -> DistributedContext:
        """Return the context of a process from torchrun's variables and process group.

        Collective: all ranks must call it once, after `torch.distributed.init_process_group`.

        Args:
            secret: The gang's, if the agent started these ranks.

        Raises:
            PeerRefused: A rank does not know the secret.
        """
        size = int(os.environ["WORLD_SIZE"])
        cross_rank = int(os.environ.get("GROUP_RANK", "0"))
        cross_size = int(os.environ.get("GROUP_WORLD_SIZE", "1"))
        group = local_group = None
        if size > 1:
            group = _new_group(None, "all", secret)
            local_group = _local_group(cross_rank, cross_size, group, secret)
        return cls(
            rank=int(os.environ["RANK"]),
            size=size,
            local_rank=int(os.environ["LOCAL_RANK"]),
            local_size=int(os.environ["LOCAL_WORLD_SIZE"]),
            cross_rank=cross_rank,
            cross_size=cross_size,
            group=group,
            local_group=local_group,
            secret=secret,
        )

    @property
    def is_chief(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    def get_rank(self) -> int:
        """Return `rank`."""
        return self.rank

    def get_local_rank(self) -> int:
        """Return `local_rank`."""
        return self.local_rank

    def get_size(self) -> int:
        """Return `size`."""
        return self.size

    def get_num_agents(self) -> int:
        """Return `cross_size`."""
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
            self._everyone.reduce_(tensor, _OPERATIONS[operation])
        return tensor

    def close(self) -> None:
        """End the groups of these ranks; later collectives raise a RuntimeError.

        Waits for the collectives that this rank has begun. Call it before a script ends: a thread
        of a group that releases a tensor while Python ends aborts the process.
        """
        for group in self._groups if dist.is_initialized() else ():
            dist.destroy_process_group(group)
        if self._groups:
            self._everyone = self._neighbours = cast("ObjectExchange", _Closed())
        self._groups = set()  # the last reference: the groups' threads have ended after it


class _Closed:
    """Takes the place of the exchanges of a closed context."""

    def __getattr__(self, name: str) -> NoReturn:
        raise RuntimeError(f"distributed: got {name}, but these ranks' groups are closed")


def _exchange(
    group: dist.ProcessGroup | None, size: int, name: str, secret: bytes
) -> ObjectExchange | None:
    return None if group is None or size == 1 else ObjectExchange(group, name, secret)


def _new_group(ranks: list[int] | None, name: str, secret: bytes) -> dist.ProcessGroup:
    """Return a gloo group of ranks that know the secret. Collective over all ranks."""
    group: dist.ProcessGroup = dist.new_group(ranks, backend="gloo", timeout=CONTROL_TIMEOUT)
    if ranks is None or dist.get_rank() in ranks:
        check_members(group, name, secret)
    return group


def _local_group(
    cross_rank: int, cross_size: int, group: dist.ProcessGroup, secret: bytes
) -> dist.ProcessGroup | None:
    if cross_size == 1:
        return group
    computers: list[int] = ObjectExchange(group, "computers", secret).allgather(cross_rank)
    mine = None
    for computer in range(cross_size):  # every rank has to take part in every group's creation
        ranks = [rank for rank, home in enumerate(computers) if home == computer]
        made = _new_group(ranks, f"computer {computer}", secret)
        if computer == cross_rank:
            mine = made
    return mine


@contextmanager
def local_chief_first(distributed: DistributedContext) -> Iterator[None]:
    """Run the block on one rank of each computer first, then on the others. Collective.

    The first rank prepares what the ranks of a computer share, such as a download:

        with local_chief_first(context.distributed):
            dataset = torchvision.datasets.MNIST(folder, download=True)

    Raises:
        RuntimeError: On the other ranks, which do not run the block if it failed on the first.
    """
    if distributed.local_size == 1:
        yield
    elif distributed.local_rank == 0:
        failure: str | None = "was ended"
        try:
            yield
            failure = None
        except BaseException as error:
            failure = f"raised {error_text(error)}"
            raise
        finally:
            distributed.broadcast_local((distributed.rank, failure))
    else:
        rank, failure = distributed.broadcast_local((-1, None))
        if failure is not None:
            raise RuntimeError(f"local_chief_first: rank {rank}, which goes first, {failure}")
        yield
