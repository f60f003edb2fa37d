"""Samplers from which to compose the order of data, for loaders that a user builds.

Compose them in this order: shuffle; repeat (training only); shard among the ranks; batch; skip
batches that were trained before. `det_jupyter.pytorch.DataLoader` does all of it by itself. A
"batch sampler" yields lists of indices, one per batch.

    records 0..9, batches of 2, two ranks, repeating
    rank 0: [0,1] [4,5] [8,9] | [2,3] [6,7] | [0,1] ...
    rank 1: [2,3] [6,7] | [0,1] [4,5] [8,9] | [2,3] ...      | a new pass begins
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TypeVar

import numpy
from torch.utils.data import BatchSampler, Sampler

T = TypeVar("T")


class _Derived(Sampler[T]):
    """A sampler that takes its items, and its length, from another one."""

    def __init__(self, sampler: Sampler[T]) -> None:
        self._sampler = sampler

    def __len__(self) -> int:
        return len(self._sampler)  # type: ignore[arg-type]  # it has a length if the wrapped one has


class _Repeat(_Derived[T]):
    def __iter__(self) -> Iterator[T]:
        while True:
            found = False
            for item in self._sampler:
                found = True
                yield item
            if not found:
                raise ValueError("cannot repeat a sampler that yields nothing")


class RepeatSampler(_Repeat[int]):
    """Goes through a sampler again and again, forever. Its length is that of one pass."""


class RepeatBatchSampler(_Repeat[list[int]], BatchSampler):
    """Goes through a batch sampler again and again, forever. Its length is that of one pass."""

    def __init__(self, batch_sampler: BatchSampler) -> None:
        super().__init__(batch_sampler)


class _Shard(_Derived[T]):
    def __init__(self, sampler: Sampler[T], num_workers: int, rank: int) -> None:
        if num_workers < 1:
            raise ValueError(f"num_workers: got {num_workers}, expected at least 1")
        if not 0 <= rank < num_workers:
            raise ValueError(f"rank: got {rank}, expected 0 to {num_workers - 1}")
        super().__init__(sampler)
        self._num_workers = num_workers
        self._rank = rank

    def __len__(self) -> int:
        return shard_length(super().__len__(), self._num_workers, self._rank)

    def __iter__(self) -> Iterator[T]:
        return islice(self._sampler, self._rank, None, self._num_workers)


class DistributedSampler(_Shard[int]):
    """Gives each rank every `num_workers`-th record; the first has the number of the rank."""


class DistributedBatchSampler(_Shard[list[int]], BatchSampler):
    """Gives batch i to rank `i % num_workers`: whole batches, not a stride through records."""

    def __init__(self, batch_sampler: BatchSampler, num_workers: int, rank: int) -> None:
        super().__init__(batch_sampler, num_workers, rank)


class _Skip(_Derived[T]):
    def __init__(self, sampler: Sampler[T], skip: int) -> None:
        super().__init__(sampler)
        self._skip = skip

    def __iter__(self) -> Iterator[T]:
        return islice(self._sampler, self._skip, None)


class SkipSampler(_Skip[int]):
    """Leaves out the first `skip` records. Its length is that of the whole sampler."""


class SkipBatchSampler(_Skip[list[int]], BatchSampler):
    """Leaves out the first `skip` batches. Its length is that of the whole sampler."""

    def __init__(self, batch_sampler: BatchSampler, skip: int) -> None:
        super().__init__(batch_sampler, skip)


class _Shuffle(_Derived[T]):
    def __init__(self, sampler: Sampler[T], seed: int) -> None:
        super().__init__(sampler)
        self._generator = numpy.random.RandomState(seed)

    def __iter__(self) -> Iterator[T]:
        in_order = list(self._sampler)
        for index in self._generator.permutation(len(in_order)):
            yield in_order[index]


class ReproducibleShuffleSampler(_Shuffle[int]):
    """Shuffles the records anew in each pass, in an order that the seed alone determines."""


class ReproducibleShuffleBatchSampler(_Shuffle[list[int]], BatchSampler):
    """Shuffles the order of batches anew in each pass; each batch keeps its records."""

    def __init__(self, batch_sampler: BatchSampler, seed: int) -> None:
        super().__init__(batch_sampler, seed)


def adapt_batch_sampler(
    batch_sampler: BatchSampler,
    repeat: bool = False,
    skip: int = 0,
    num_replicas: int = 1,
    rank: int = 0,
) -> BatchSampler:
    """Return a batch sampler that gives one rank its batches: repeat, then shard, then skip.

    Args:
        batch_sampler: Gives the batches of one pass, the same on all ranks.
        repeat: Continue with the next pass when one ends, forever.
        skip: Batches of this rank to leave out.
        num_replicas: How many ranks share the batches.
        rank: Which of them this is.

    >>> batches = BatchSampler(range(10), 2, drop_last=False)
    >>> list(adapt_batch_sampler(batches, skip=1, num_replicas=2, rank=0))
    [[4, 5], [8, 9]]
    """
    if repeat:
        batch_sampler = RepeatBatchSampler(batch_sampler)
    if num_replicas != 1 or rank != 0:
        batch_sampler = DistributedBatchSampler(batch_sampler, num_replicas, rank)
    return SkipBatchSampler(batch_sampler, skip) if skip else batch_sampler


def shard_length(total: int, num_shards: int, shard: int) -> int:
    """Return how many of `total` items a shard gets, when item i goes to shard `i % num_shards`.

    >>> [shard_length(5, 2, shard) for shard in (0, 1)]
    [3, 2]
    """
    return (total - shard + num_shards - 1) // num_shards
