"""A rank's place among the ranks, and collectives on any picklable value between them.

Everything here goes over a gloo group of its own, apart from the one that carries gradients:
values are small and on the CPU, and nothing that waits here can be mixed up with an all-reduce.
How objects travel is in objects.py.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Literal, TypeVar, cast

import torch
import torch.distributed as dist

from det_jupyter.core.objects import ObjectExchange, check_members

T = TypeVar("T")

# A peer that died is noticed at once, by its closed connection. This bounds only a deadlock, and
# has to let the chief evaluate or write a checkpoint alone for hours while the others wait.
CONTROL_TIMEOUT = timedelta(days=1)

_OPERATIONS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX}


class DistributedContext:
    """Ranks, sizes and collectives. All ranks must call collectives, in the same order.

    Args:
        rank: Index of this process in the job; the chief is rank 0.
        size: How many processes the job has.
        local_rank: Index on this computer; the local chief is 0.
        local_size: How many processes this computer has.
        cross_rank: Index of this computer (of its agent: a simulated one counts as a computer).
        cross_size: How many computers there are.
        group: Gloo group of all ranks; None if there is one rank.
        local_group: Gloo group of this computer's ranks; None if it has one rank.
        secret: What all ranks of the gang know and other users do not; empty under torchrun.
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
        self._group = group
        self._everyone = _exchange(group, size, "all", secret)
        self._neighbours = _exchange(local_group, local_size, "local", secret)

    @classmethod
    def from_torch_distributed(cls, secret: bytes = b"") -> DistributedContext:
        """Return the context of a process that torchrun's variables and process group describe.

        Collective: all ranks must call it once, after `torch.distributed.init_process_group`.

        Args:
            secret: The gang's, if the agent has started these ranks.

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
        """Return `cross_size`: how many computers there are."""
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
        """Return the chief's value; what the others pass is ignored."""
        return cast("T", self._everyone.broadcast(value)) if self._everyone else value

    def broadcast_local(self, value: T) -> T:
        """Return the local chief's value; what the others pass is ignored."""
        return cast("T", self._neighbours.broadcast(value)) if self._neighbours else value

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        if self._group is not None:
            dist.barrier(group=self._group)

    def reduce_(self, tensor: torch.Tensor, operation: Literal["sum", "max"]) -> torch.Tensor:
        """Replace the CPU tensor by the sum or maximum over all ranks, in place, and return it."""
        if self._group is not None:
            dist.all_reduce(tensor, op=_OPERATIONS[operation], group=self._group)
        return tensor


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
    for computer in range(cross_size):  # all ranks have to make all groups
        ranks = [rank for rank, home in enumerate(computers) if home == computer]
        made = _new_group(ranks, f"computer {computer}", secret)
        if computer == cross_rank:
            mine = made
    return mine
