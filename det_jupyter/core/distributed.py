"""A rank's place among the ranks, and collectives on any picklable value between them.

Everything here goes over a gloo group of its own, apart from the one that carries gradients:
values are small and on the CPU, and nothing that waits here can be mixed up with an all-reduce.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Literal, TypeVar

import torch
import torch.distributed as dist

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
        self._local_group = local_group

    @classmethod
    def from_torch_distributed(cls) -> DistributedContext:
        """Return the context of a process that torchrun's variables and process group describe.

        Collective: all ranks must call it once, after `torch.distributed.init_process_group`.
        """
        size = int(os.environ["WORLD_SIZE"])
        cross_rank = int(os.environ.get("GROUP_RANK", "0"))
        cross_size = int(os.environ.get("GROUP_WORLD_SIZE", "1"))
        group = local_group = None
        if size > 1:
            group = dist.new_group(backend="gloo", timeout=CONTROL_TIMEOUT)
            local_group = _local_group(cross_rank, cross_size, group)
        return cls(
            rank=int(os.environ["RANK"]),
            size=size,
            local_rank=int(os.environ["LOCAL_RANK"]),
            local_size=int(os.environ["LOCAL_WORLD_SIZE"]),
            cross_rank=cross_rank,
            cross_size=cross_size,
            group=group,
            local_group=local_group,
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
        return _gather(value, self._group, self.rank, self.size)

    def gather_local(self, value: T) -> list[T] | None:
        """Return the values of this computer's ranks on its local chief; None elsewhere."""
        return _gather(value, self._local_group, self.local_rank, self.local_size)

    def allgather(self, value: T) -> list[T]:
        """Return every rank's value, in the order of ranks, on all ranks."""
        return _allgather(value, self._group, self.size)

    def allgather_local(self, value: T) -> list[T]:
        """Return the values of this computer's ranks, on each of them."""
        return _allgather(value, self._local_group, self.local_size)

    def broadcast(self, value: T) -> T:
        """Return the chief's value; what the others pass is ignored."""
        return _broadcast(value, self._group, self.size)

    def broadcast_local(self, value: T) -> T:
        """Return the local chief's value; what the others pass is ignored."""
        return _broadcast(value, self._local_group, self.local_size)

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        if self._group is not None:
            dist.barrier(group=self._group)

    def reduce_(self, tensor: torch.Tensor, operation: Literal["sum", "max"]) -> torch.Tensor:
        """Replace the CPU tensor by the sum or maximum over all ranks, in place, and return it."""
        if self._group is not None:
            dist.all_reduce(tensor, op=_OPERATIONS[operation], group=self._group)
        return tensor


def _local_group(
    cross_rank: int, cross_size: int, group: dist.ProcessGroup
) -> dist.ProcessGroup | None:
    if cross_size == 1:
        return group
    computers: list[int] = _allgather(cross_rank, group, dist.get_world_size(group))
    mine = None
    for computer in range(cross_size):  # all ranks have to make all groups
        ranks = [rank for rank, home in enumerate(computers) if home == computer]
        made = dist.new_group(ranks, backend="gloo", timeout=CONTROL_TIMEOUT)
        if computer == cross_rank:
            mine = made
    return mine


def _gather(value: T, group: dist.ProcessGroup | None, rank: int, size: int) -> list[T] | None:
    if group is None or size == 1:
        return [value]
    values: list[T] | None = [value] * size if rank == 0 else None
    dist.gather_object(value, values, dst=dist.get_global_rank(group, 0), group=group)
    return values


def _allgather(value: T, group: dist.ProcessGroup | None, size: int) -> list[T]:
    if group is None or size == 1:
        return [value]
    values = [value] * size
    dist.all_gather_object(values, value, group=group)
    return values


def _broadcast(value: T, group: dist.ProcessGroup | None, size: int) -> T:
    if group is None or size == 1:
        return value
    values = [value]
    dist.broadcast_object_list(values, src=dist.get_global_rank(group, 0), group=group)
    return values[0]
