"""Iterable datasets: every rank reads the stream, and takes its rows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import IterableDataset

from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.data import DataLoader
from det_jupyter.pytorch.rng import seed_everything
from tests.unit.pytorch.data.test_streams import joined, streams
from tests.unit.pytorch.data_support import (
    Counting,
    Shuffling,
    SizedCounting,
    jitter,
    numbers,
    states,
    taken,
    training,
    validation,
)

few = settings(max_examples=40)


@given(
    st.integers(1, 30),
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.booleans(),
    st.integers(0, 12),
)
@few
def test_ranks_divide_a_stream_as_they_divide_records_with_indices(
    records: int, sizes: list[int], drop_last: bool, skip: int
) -> None:
    if drop_last and records < sum(sizes):
        return
    indexed = joined(streams(numbers(records), [sum(sizes)], drop_last=drop_last), skip + 6)
    found = joined(streams(Counting(records), sizes, skip=skip, drop_last=drop_last), 6)
    assert found == indexed[skip:]


def test_a_stream_with_a_length_has_epochs() -> None:
    def length(dataset: Any, **options: Any) -> int | None:
        return training(DataLoader(dataset, 2, **options), 0, 2).batches_per_epoch

    assert length(SizedCounting(10)) == 3
    assert length(SizedCounting(10), drop_last=True) == 2
    assert length(Counting(10)) is None
    assert len(DataLoader(SizedCounting(10), 3)) == 4
    with pytest.raises(TypeError, match="Counting has no __len__"):
        len(DataLoader(Counting(10), 3))


def test_ranks_validate_a_stream_without_stand_ins() -> None:
    recipe = DataLoader(Counting(5), 2)
    found = [[records for records, _ in taken(validation(recipe, r, 2), 9)] for r in (0, 1)]
    assert found == [[[0, 1], [4]], [[2, 3]]]
    assert taken(validation(DataLoader(Counting(0))), 9) == []


def test_a_stream_draws_the_same_on_every_rank_and_after_a_pause() -> None:
    def rows(rank: int, size: int, skip: int) -> list[list[float]]:
        seed_everything(100 * rank + skip)
        stream = training(DataLoader(Shuffling(), 4 // size), rank, size, skip=skip)
        before = states()
        batches = [torch.stack(batch, 1) for batch, _ in islice(stream, 8)]
        assert states() == before
        return [row for batch in batches for row in batch.tolist()]

    whole = rows(0, 1, skip=0)
    assert rows(0, 1, skip=4)[:15] == whole[15:]
    both = [rows(rank, 2, skip=0) for rank in (0, 1)]
    assert sorted(both[0] + both[1]) == sorted(whole)
    assert sorted(row[0] for row in whole[:11]) == list(range(11))
    assert whole[:11] != whole[11:22]  # another order in each pass


def test_what_collating_a_stream_draws_depends_on_the_batch() -> None:
    def batches(skip: int) -> list[list[float]]:
        stream = training(DataLoader(Counting(9), 2, collate_fn=jitter), skip=skip)
        return [batch.tolist() for batch, _ in islice(stream, 6)]

    whole = batches(0)
    assert batches(3)[:3] == whole[3:]
    assert len({batch[-1] for batch in whole}) == 6


@pytest.mark.parametrize("drop_last", [False, True])
def test_an_empty_stream_is_one_clear_error(drop_last: bool) -> None:
    recipe = DataLoader(Counting(int(drop_last)), 2, drop_last=drop_last)
    with pytest.raises(ConfigError, match="rank 1: Counting yields no batch") as caught:
        taken(training(recipe, 1, 2), 1)
    assert "expected at least one in a pass" in str(caught.value)


def test_a_stream_that_can_be_read_once_only_is_told_so() -> None:
    class Once(IterableDataset[int]):
        def __init__(self) -> None:
            self.rest = iter(range(4))

        def __iter__(self) -> Iterator[int]:
            return self.rest

    with pytest.raises(ConfigError, match="Once yields nothing in pass 1"):
        taken(training(DataLoader(Once(), 2)), 3)


def test_a_stream_that_is_not_as_long_as_it_says_is_warned_of_once() -> None:
    class Boasting(SizedCounting):
        def __len__(self) -> int:
            return 50

    with pytest.warns(UserWarning, match="makes 25 global batches, but a pass has 2") as told:
        taken(training(DataLoader(Boasting(4), 2)), 9)
    assert len(told) == 1


def test_a_stream_is_told_which_pass_it_is() -> None:
    class Epochs(Counting):
        epoch = -1

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __iter__(self) -> Iterator[int]:
            yield from (10 * self.epoch + i for i in range(2))

    assert [r for r, _ in taken(training(DataLoader(Epochs(2), 2)), 3)] == [
        [0, 1],
        [10, 11],
        [20, 21],
    ]


def test_a_stream_as_a_torch_loader() -> None:
    loader = DataLoader(SizedCounting(5), 2).get_data_loader()
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4]]
    assert (len(loader), type(loader.dataset)) == (3, SizedCounting)
    assert [b.tolist() for b in DataLoader(Counting(3), 2)] == [[0, 1], [2]]
