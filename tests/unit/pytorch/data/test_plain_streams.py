"""Loaders that are not ours: torch's own, lists of batches, anything that can be iterated."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Dataset, DistributedSampler, Sampler

from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.data import DataLoader, Share, open_training
from det_jupyter.pytorch.data.division import Division
from det_jupyter.pytorch.data.streams import DataLoaderStream
from det_jupyter.pytorch.rng import seed_everything
from tests.unit.pytorch.data_support import (
    FeignedRank,
    SizedCounting,
    numbers,
    taken,
    training,
    validation,
)


def batches(count: int) -> list[torch.Tensor]:
    return [torch.tensor([i, i]) for i in range(count)]


def test_a_list_of_batches_is_gone_through_again_and_again() -> None:
    stream = training(batches(3), 1, 2, skip=2)
    assert stream.batches_per_epoch == 3
    assert taken(stream, 3) == [
        ([2, 2], Share(2, 4)),
        ([0, 0], Share(2, 4)),
        ([1, 1], Share(2, 4)),
    ]
    assert taken(validation(batches(2)), 9) == [([0, 0], Share(2, 2)), ([1, 1], Share(2, 2))]


def test_an_iterable_without_a_length_is_gone_through_again() -> None:
    class Fresh:
        def __iter__(self) -> Iterator[torch.Tensor]:
            return iter(batches(2))

    stream = training(Fresh(), skip=1)
    assert stream.batches_per_epoch is None
    assert [records for records, _ in taken(stream, 3)] == [[1, 1], [0, 0], [1, 1]]


def test_a_generator_that_is_exhausted_is_one_clear_error() -> None:
    with pytest.raises(ConfigError) as caught:
        taken(training(iter(batches(2)), 1, 2), 3)
    assert str(caught.value) == (
        "build_training_data_loader: rank 1: the list_iterator ended after 2 batches and yields "
        "nothing when it is iterated again; return one that begins anew, "
        "or train for 2 batches at most"
    )
    with pytest.raises(ConfigError, match="rank 0: the list_iterator has no batches"):
        taken(training(iter([])), 3)
    with pytest.raises(ConfigError, match="the loader of rank 0 has no batches"):
        training([])
    with pytest.raises(ConfigError, match=r"got 3, expected a det_jupyter\.pytorch\.DataLoader"):
        training(3)


class Lengths(FeignedRank):
    """Ranks whose loaders differ in length."""

    def __init__(self, rank: int, *lengths: int) -> None:
        super().__init__(rank, len(lengths))
        self.lengths = lengths

    def allgather(self, value: Any) -> list[Any]:
        return [
            type(value)(kind=value.kind, length=length, order=value.order, seed=value.seed)
            for length in self.lengths
        ]


def test_passes_end_with_the_shortest_loader() -> None:
    ranks: Any = Lengths(0, 2, 5)
    with pytest.warns(UserWarning, match="differ in length: rank 0 has 2, rank 1 has 5") as told:
        stream = open_training(batches(5), ranks, seed=1, skip=0, batch_length=len)
    assert [warning.filename for warning in told] == [__file__]  # the user's line, none of ours
    other: Any = Lengths(1, 2, 5)
    open_training(batches(5), other, seed=1, skip=0, batch_length=len)  # tells nothing: not again
    assert stream.batches_per_epoch == 2
    assert [records for records, _ in taken(stream, 4)] == [[0, 0], [1, 1], [0, 0], [1, 1]]


def test_ranks_whose_records_differ_in_number_are_refused() -> None:
    ranks: Any = Lengths(0, 9, 8)
    with pytest.raises(ConfigError) as caught:
        open_training(DataLoader(numbers(9)), ranks, seed=1, skip=0, batch_length=len)
    assert str(caught.value) == (
        "build_training_data_loader: the number of records is 9 on rank 0 and 8 on rank 1; "
        "all ranks have to build the same (only batch_size may differ)"
    )


def test_a_shuffling_torch_loader_continues_where_it_was_and_leaves_generators_alone() -> None:
    def records(skip: int, count: int) -> list[list[int]]:
        seed_everything(skip)
        stream = training(TorchDataLoader(numbers(10), 3, shuffle=True), skip=skip)
        found = [record for record, _ in taken(stream, count)]
        drawn = torch.rand(())
        seed_everything(skip)
        assert torch.equal(drawn, torch.rand(()))
        return found

    whole = records(0, 12)
    assert [len(batch) for batch in whole[:4]] == [3, 3, 3, 1]
    assert whole[:4] != whole[4:8]
    assert records(6, 6) == whole[6:]


class Noting(Dataset[int]):
    """Notes which records were asked for."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.asked: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        self.asked.append(index)
        return index


def resumed_at(skip: int, **options: Any) -> tuple[list[list[int]], int]:
    """Return the next batches of a loader with four in a pass, and how many records it loaded."""
    dataset = Noting(8)
    if "sampler" in options:
        options["sampler"] = options["sampler"](dataset)
    stream = training(TorchDataLoader(dataset, 2, **options), skip=skip)
    return [records for records, _ in taken(stream, 3)], len(dataset.asked)


def distributed_sampler(dataset: Noting) -> Sampler[int]:
    return DistributedSampler(dataset, num_replicas=1, rank=0)


@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"sampler": distributed_sampler}])
def test_a_torch_loader_that_keeps_nothing_loads_its_last_pass_again_only(
    options: dict[str, Any],
) -> None:
    whole, _ = resumed_at(0, **options)
    assert [len(batch) for batch in whole] == [2, 2, 2]
    later, loaded = resumed_at(4005, **options)  # the second batch of a pass
    assert loaded == 8
    expected = [resumed_at(skip, **options)[0][0] for skip in (4005, 4006, 4007)]
    assert later == expected


class Own(Sampler[int]):
    """Shifts its order by one with each pass."""

    def __init__(self, dataset: Noting) -> None:
        self.order = list(range(len(dataset)))

    def __iter__(self) -> Iterator[int]:
        self.order.append(self.order.pop(0))
        return iter(self.order)

    def __len__(self) -> int:
        return len(self.order)


@pytest.mark.parametrize(
    "options",
    [{"sampler": Own}, {"shuffle": True, "generator": torch.Generator().manual_seed(1)}],
)
def test_a_torch_loader_that_may_count_its_passes_is_gone_through_from_the_first(
    options: dict[str, Any],
) -> None:
    assert resumed_at(21, **options)[1] == 2 * 24


def test_a_jump_finds_what_going_through_all_passes_finds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jumped, _ = resumed_at(21, shuffle=True)
    monkeypatch.setattr("det_jupyter.pytorch.data.streams.can_jump", lambda *_: False)
    counted, loaded = resumed_at(21, shuffle=True)
    assert loaded == 2 * 24
    assert jumped == counted


def test_samplers_of_a_torch_loader_are_told_the_epoch() -> None:
    sampler = DistributedSampler(numbers(8), num_replicas=2, rank=0, seed=3)  # type: ignore[var-annotated]
    loader = TorchDataLoader(numbers(8), 2, sampler=sampler)
    stream = training(loader)
    found = [record for record, _ in taken(stream, 6)]
    for epoch in range(3):
        sampler.set_epoch(epoch)
        expected = list(sampler)
        assert found[2 * epoch] + found[2 * epoch + 1] == expected


def test_nothing_is_warned_of_when_all_is_well() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        taken(training(DataLoader(SizedCounting(4), 2)), 5)
        taken(training(batches(2), 0, 2), 5)


def test_a_stream_object_can_be_closed_twice() -> None:
    for stream in (training(batches(2)), training(DataLoader(numbers(4)))):
        next(iter(stream))
        stream.close()
        stream.close()
    division = Division([1], 0)
    unused = DataLoaderStream(DataLoader(numbers(4)), division, seed=1, skip=0, repeat=True)
    unused.close()
