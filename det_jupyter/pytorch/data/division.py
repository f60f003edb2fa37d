"""How a global batch, the records of all ranks in one step, is divided among the ranks.

    batch sizes 3, 3, 2, 2          rank 0   rank 1   rank 2   rank 3
    a full batch, 10 records        0 1 2    3 4 5    6 7      8 9
    a short one, 5 records          0 1      2        3        4
    a short one, 2 records          0        1        (0 1)    (0 1)

Each rank has contiguous rows, in the order of ranks. A short batch, the last of a pass, is divided
as evenly as the ranks' batch sizes allow. In training, a rank that gets no record of it trains on
a stand-in (in brackets), so that it takes part in the exchange of gradients; its share is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch

Indices: TypeAlias = torch.Tensor | range | list[int]


@dataclass(frozen=True, slots=True)
class Share:
    """How many records of one global batch a rank trains on."""

    records: int  # records of this rank; 0 if its batch is a stand-in
    total: int  # records of all ranks


class RankPart(NamedTuple):
    """A rank's part of one global batch, not yet loaded."""

    indices: Indices  # indices of the records in the dataset
    share: Share
    step: int  # position of the global batch in the whole training
    begin: int  # the first of these rows in the global batch


class Division:
    """Computes one rank's part of global batches, from the batch sizes of all ranks."""

    def __init__(self, batch_sizes: Sequence[int], rank: int) -> None:
        self.batch_sizes = tuple(batch_sizes)
        self.rank = rank
        self.size = len(self.batch_sizes)
        self.total = sum(self.batch_sizes)
        begin = sum(self.batch_sizes[:rank])
        own = self.batch_sizes[rank]
        self._full = begin, begin + own, Share(own, self.total)

    def rows(self, total: int) -> tuple[int, int, Share]:
        """Return begin and end of the rank's rows in a global batch of `total`, and its share."""
        if total == self.total:
            return self._full
        counts = divide(total, self.batch_sizes)
        records = counts[self.rank]
        if not records:
            return 0, min(total, self.batch_sizes[self.rank]), Share(0, total)
        begin = sum(counts[: self.rank])
        return begin, begin + records, Share(records, total)

    def deal(self, batches: Sequence[list[int]]) -> tuple[list[int], Share]:
        """Return this rank's batch and share; `batches` has at most one batch per rank."""
        total = sum(map(len, batches))
        if self.rank < len(batches):
            own = batches[self.rank]
            return own, Share(len(own), total)
        return batches[-1], Share(0, total)


def divide(total: int, limits: Sequence[int]) -> list[int]:
    """Return how many of `total` rows each rank gets: evenly, but no rank more than its limit.

    >>> divide(5, [3, 3, 2, 2]), divide(2, [3, 3, 2, 2]), divide(9, [8, 1, 8])
    ([2, 1, 1, 1], [1, 1, 0, 0], [4, 1, 4])
    """
    counts = [0] * len(limits)
    left = min(total, sum(limits))
    while left:
        open_ranks = [rank for rank, limit in enumerate(limits) if counts[rank] < limit]
        each, more = divmod(left, len(open_ranks))
        for position, rank in enumerate(open_ranks):
            given = min(limits[rank] - counts[rank], each + (position < more))
            counts[rank] += given
            left -= given
    return counts
