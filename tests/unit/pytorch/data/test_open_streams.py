"""What the ranks agree on before they load: loaders that fit together, and shares."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler

from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.data import DataLoader, open_training
from det_jupyter.pytorch.data.division import Division
from det_jupyter.pytorch.data.streams import DataLoaderStream
from tests.unit.pytorch.data_support import Counting, FeignedRank, SizedCounting, numbers, training


class Differing(FeignedRank):
    """Ranks that have built different loaders."""

    def __init__(self, *loaders: DataLoader) -> None:
        super().__init__(0, len(loaders))
        self.loaders = loaders

    def allgather(self, value: Any) -> list[Any]:
        return [type(value).of(loader, 5) for loader in self.loaders]


@pytest.mark.parametrize("records", [30, 4])  # 4 are two batches of 3, and two of 2
def test_batch_samplers_with_a_ranks_share_of_an_uneven_global_batch_are_refused(
    records: int,
) -> None:
    loaders = [
        DataLoader(numbers(records), batch_sampler=BatchSampler(range(records), size, False))
        for size in (3, 2)
    ]
    ranks: Any = Differing(*loaders)
    with pytest.raises(ConfigError) as caught:
        open_training(loaders[0], ranks, seed=5, skip=0, batch_length=len)
    assert str(caught.value) == (
        "build_training_data_loader: the batch_size of the batch_sampler is 3 on rank 0 and 2 on "
        "rank 1; each of its batches goes whole to one rank, so all ranks have to build the same. "
        "context.get_per_slot_batch_size() is not the same on all ranks if global_batch_size is "
        "no multiple of the slots: choose one that is, or give the DataLoader batch_size=... and "
        "sampler=..., which divide any"
    )


def test_batch_samplers_of_different_lengths_are_refused_as_batches() -> None:
    loaders = [
        DataLoader(numbers(9), batch_sampler=BatchSampler(range(records), 1, False))
        for records in (9, 8)
    ]
    ranks: Any = Differing(*loaders)
    with pytest.raises(ConfigError, match="the number of batches is 9 on rank 0 and 8 on rank 1"):
        open_training(loaders[0], ranks, seed=5, skip=0, batch_length=len)


@pytest.mark.parametrize(
    ("records", "sizes", "options", "smallest"),
    [
        (20, [3, 3, 2, 2], {}, None),  # no short batch
        (25, [3, 3, 2, 2], {}, 1),  # 2, 1, 1, 1
        (28, [3, 3, 2, 2], {}, None),  # 2, 2, 2, 2: as in a full one
        (21, [3, 3, 2, 2], {}, 1),  # 1, and stand-ins of 1
        (26, [8, 8], {}, 5),
        (25, [3, 3, 2, 2], {"drop_last": True}, None),
        (3, [2, 1], {}, None),
        (4, [2, 1], {}, None),  # a rank has 1 in every batch
    ],
)
def test_the_smallest_share_of_a_short_last_batch(
    records: int, sizes: list[int], options: dict[str, Any], smallest: int | None
) -> None:
    for data in (numbers(records), SizedCounting(records)):
        for rank, size in enumerate(sizes):
            recipe = DataLoader(data, size, **options)
            stream = DataLoaderStream(recipe, Division(sizes, rank), seed=5, skip=0, repeat=True)
            assert stream.smallest_share == smallest


def test_the_smallest_share_of_other_data_is_not_known() -> None:
    assert training([torch.zeros(1)]).smallest_share is None
    assert training(DataLoader(Counting(25), 2)).smallest_share is None
    batches = BatchSampler(range(3), 2, False)
    assert training(DataLoader(numbers(3), batch_sampler=batches)).smallest_share is None
