"""Ranks that live in one process, and datasets to share among them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar, cast

import numpy
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from det_jupyter.core import DistributedContext
from det_jupyter.pytorch.data import BatchStream, DataLoader, Share, open_training, open_validation

T = TypeVar("T")
Drawn = list[list[float]]


class FeignedRank:
    """One of several ranks that all say the same in the one collective there is."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size

    def allgather(self, value: T) -> list[T]:
        return [value] * self.size


def rank_of(rank: int, size: int) -> DistributedContext:
    return cast(DistributedContext, FeignedRank(rank, size))


def training(
    loader: Any, rank: int = 0, size: int = 1, *, skip: int = 0, seed: int = 5
) -> BatchStream:
    return open_training(loader, rank_of(rank, size), seed=seed, skip=skip, batch_length=len)


def validation(loader: Any, rank: int = 0, size: int = 1) -> BatchStream:
    return open_validation(loader, rank_of(rank, size), seed=5, batch_length=len)


def records_of(batch: Any) -> list[int]:
    """Return the records of a batch: of a TensorDataset's, or one that is a tensor."""
    records: list[int] = (batch[0] if isinstance(batch, list) else batch).tolist()
    return records


def taken(stream: BatchStream, count: int) -> list[tuple[list[int], Share]]:
    """Return the records and shares of the first batches, and close the stream."""
    found = [(records_of(batch), share) for batch, share in islice(stream, count)]
    stream.close()
    return found


def counted(pairs: Iterable[tuple[list[int], Share]]) -> list[list[int]]:
    """Return the records that count: a stand-in's do not."""
    return [records[: share.records] for records, share in pairs]


def numbers(count: int) -> TensorDataset:
    return TensorDataset(torch.arange(count))


def recipes(dataset: Any, sizes: Sequence[int], **options: Any) -> list[DataLoader]:
    return [DataLoader(dataset, size, **options) for size in sizes]


def states() -> tuple[Any, ...]:
    """Return the states of the global generators, to be compared."""
    numpys: Any = numpy.random.get_state()
    kind, key, *rest = numpys
    torch_state = torch.get_rng_state().tolist()
    return random.getstate(), kind, key.tolist(), *rest, torch_state


class Rolling(Dataset[tuple[int, float, float, float]]):
    """Draws a number of each generator for each record."""

    def __len__(self) -> int:
        return 22

    def __getitem__(self, index: int) -> tuple[int, float, float, float]:
        return index, random.random(), float(numpy.random.normal()), float(torch.rand(()))


class Counting(IterableDataset[int]):
    """Yields the numbers from 0, with no length."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        yield from range(self.count)


class SizedCounting(Counting):
    """Tells its length."""

    def __len__(self) -> int:
        return self.count


class Shuffling(IterableDataset[list[float]]):
    """Yields numbers in an order that it draws, and another drawn number with each."""

    def __iter__(self) -> Iterator[list[float]]:
        order = list(range(11))
        random.shuffle(order)
        for number in order:
            yield [float(number), float(numpy.random.normal()), float(torch.rand(()))]


def jitter(records: list[Any]) -> torch.Tensor:
    """Collate with a drawn number of each generator appended."""
    drawn = [random.random(), float(numpy.random.normal()), float(torch.rand(()))]
    return torch.cat([torch.tensor(records).flatten(), torch.tensor(drawn)])
