"""`set_epoch` may draw: it does so from the stream of its pass, as the order that follows does."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import BatchSampler, IterableDataset, Sampler
from torch.utils.data import DataLoader as TorchDataLoader

from det_jupyter.pytorch.data import DataLoader
from det_jupyter.pytorch.rng import seed_everything
from tests.unit.pytorch.data_support import numbers, states, taken, training, validation

NUM = 64


def drawn_order() -> list[int]:
    """Return numbers that depend on each of the generators."""
    order = list(range(NUM))
    random.shuffle(order)
    shift = int(numpy.random.randint(NUM)) + int(torch.randint(NUM, ()))
    return [(number + shift) % NUM for number in order][:8]


class Shuffled(Sampler[int]):
    """Draws its order when it is told the epoch, and nothing when it is iterated."""

    order: list[int]

    def __init__(self) -> None: ...

    def set_epoch(self, epoch: int) -> None:
        self.order = drawn_order()

    def __iter__(self) -> Iterator[int]:
        return iter(self.order)

    def __len__(self) -> int:
        return 8


class ShuffledStream(IterableDataset[int]):
    order: list[int]

    def set_epoch(self, epoch: int) -> None:
        self.order = drawn_order()

    def __iter__(self) -> Iterator[int]:
        return iter(self.order)


class ShuffledLoader:
    """A loader of the user's own."""

    order: list[int]

    def set_epoch(self, epoch: int) -> None:
        self.order = drawn_order()

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter([torch.tensor(self.order[i : i + 2]) for i in range(0, 8, 2)])


LOADERS: dict[str, Callable[[], Any]] = {
    "sampler": lambda: DataLoader(numbers(NUM), 2, sampler=Shuffled()),
    "batch_sampler": lambda: DataLoader(
        numbers(NUM), batch_sampler=BatchSampler(Shuffled(), 2, False)
    ),
    "stream": lambda: DataLoader(ShuffledStream(), 2),
    "torch sampler": lambda: TorchDataLoader(numbers(NUM), 2, sampler=Shuffled()),
    "torch batch_sampler": lambda: TorchDataLoader(
        numbers(NUM), batch_sampler=BatchSampler(Shuffled(), 2, False)
    ),
    "torch stream": lambda: TorchDataLoader(ShuffledStream(), 2),
    "own loader": ShuffledLoader,
}


@pytest.mark.parametrize("make", LOADERS.values(), ids=LOADERS)
def test_what_set_epoch_draws_depends_on_seed_and_pass_alone(make: Callable[[], Any]) -> None:
    def batches(skip: int = 0, *, seed: int = 5) -> list[list[int]]:
        seed_everything(1000 * seed + skip)  # whatever the training has drawn
        stream = training(make(), skip=skip, seed=seed)
        before = states()
        found = [records for records, _ in taken(stream, 12 - skip)]
        assert states() == before
        return found

    whole = batches()
    first, second, third = whole[:4], whole[4:8], whole[8:]
    assert first != second != third
    assert batches(6) == whole[6:]  # after a pause amid a pass
    assert batches(seed=6) != whole


@pytest.mark.parametrize("make", LOADERS.values(), ids=LOADERS)
def test_each_validation_has_the_same_order(make: Callable[[], Any]) -> None:
    stream = validation(make())
    orders = []
    for seed in (1, 2):
        seed_everything(seed)
        before = states()
        orders.append([records for records, _ in taken(stream, 9)])
        assert states() == before
    assert orders[0] == orders[1]
    assert len(orders[0]) == 4
