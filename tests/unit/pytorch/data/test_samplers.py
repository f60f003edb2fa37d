"""Which records each rank sees, in which order, and from where on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from torch.utils.data import DistributedSampler as TorchDistributedSampler

from det_jupyter.pytorch import DataLoader
from det_jupyter.pytorch.data.samplers import (
    DistributedBatchSampler,
    DistributedSampler,
    RepeatBatchSampler,
    RepeatSampler,
    ReproducibleShuffleBatchSampler,
    ReproducibleShuffleSampler,
    SkipBatchSampler,
    SkipSampler,
    adapt_batch_sampler,
    shard_length,
)
from det_jupyter.pytorch.rng import seed_everything

records_ = st.integers(1, 40)
batch_sizes = st.integers(1, 9)
worlds = st.integers(1, 5)
skips = st.integers(0, 30)


def in_order(records: int) -> SequentialSampler:
    return SequentialSampler(range(records))


def batched(records: int, batch_size: int) -> BatchSampler:
    return BatchSampler(in_order(records), batch_size, drop_last=False)


def dataset_of(records: int) -> TensorDataset:
    return TensorDataset(torch.arange(records))


def batches_of(loader: Any, count: int) -> list[list[int]]:
    """Return the records of the first batches that a torch loader gives."""
    return [batch[0].tolist() for batch in islice(loader, count)]


def order(recipe: DataLoader, *arguments: Any, **options: Any) -> Iterator[list[int]]:
    """Return the records, batch by batch, that `get_data_loader` gives of `dataset_of`."""
    loader = recipe.get_data_loader(*arguments, **options)
    return (records.tolist() for (records,) in loader)


def test_ten_records_on_two_ranks_as_determined_has_them() -> None:
    """Two ranks, 10 records, batches of 2: what was measured on Determined itself."""
    expected = [
        [[0, 1], [4, 5], [8, 9], [2, 3], [6, 7], [0, 1]],
        [[2, 3], [6, 7], [0, 1], [4, 5], [8, 9], [2, 3]],
    ]
    recipe = DataLoader(dataset_of(10), 2)
    for rank in (0, 1):
        loader = recipe.get_data_loader(repeat=True, num_replicas=2, rank=rank)
        assert batches_of(loader, 6) == expected[rank]
        composed = DistributedBatchSampler(RepeatBatchSampler(batched(10, 2)), 2, rank)
        assert list(islice(composed, 6)) == expected[rank]
    assert len(recipe) == 5
    assert [len(recipe.get_data_loader(num_replicas=2, rank=rank)) for rank in (0, 1)] == [3, 2]


@given(records_, batch_sizes, worlds, skips, st.booleans())
def test_a_loader_gives_what_the_samplers_compose(
    records: int, batch_size: int, world: int, skip: int, shuffle: bool
) -> None:
    recipe = DataLoader(dataset_of(records), batch_size, shuffle=shuffle)
    passes = [batch for p in range(40) for batch in recipe.order.batches(5, p)]
    for rank in range(world):
        composed = SkipBatchSampler(DistributedBatchSampler(passes, world, rank), skip)  # type: ignore[arg-type]  # a list will do
        expected = list(islice(composed, 3))
        got = order(recipe, True, skip, world, rank, seed=5)
        assert list(islice(got, len(expected))) == expected


@given(records_, batch_sizes, worlds, st.booleans())
def test_the_ranks_together_see_every_record_of_a_pass_once(
    records: int, batch_size: int, world: int, shuffle: bool
) -> None:
    recipe = DataLoader(dataset_of(records), batch_size, shuffle=shuffle)
    seen = []
    for rank in range(world):
        mine = list(order(recipe, num_replicas=world, rank=rank, seed=3))
        assert len(mine) == len(recipe.get_data_loader(num_replicas=world, rank=rank))
        seen += [record for batch in mine for record in batch]
    assert sorted(seen) == list(range(records))


@given(records_, batch_sizes, worlds, skips)
def test_skipping_continues_where_the_ranks_had_been(
    records: int, batch_size: int, world: int, skip: int
) -> None:
    recipe = DataLoader(dataset_of(records), batch_size, shuffle=True)
    for rank in range(world):
        whole = order(recipe, True, 0, world, rank, seed=9)
        rest = order(recipe, True, skip, world, rank, seed=9)
        assert list(islice(whole, skip, skip + 4)) == list(islice(rest, 4))


def test_each_pass_is_shuffled_anew_and_the_seed_alone_decides() -> None:
    recipe = DataLoader(dataset_of(50), 50, shuffle=True)
    first, second = islice(order(recipe, repeat=True, seed=1), 2)
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    torch.manual_seed(123)  # whatever else is drawn
    assert next(order(recipe, repeat=True, seed=1)) == first
    assert next(order(recipe, repeat=True, seed=2)) != first


def test_a_generator_given_to_the_recipe_decides_the_order() -> None:
    def shuffled(seed: int) -> list[list[int]]:
        generator = torch.Generator().manual_seed(4)
        recipe = DataLoader(dataset_of(20), 20, shuffle=True, generator=generator)
        return list(order(recipe, seed=seed))

    assert shuffled(seed=1) == shuffled(seed=2)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_making_an_iterator_draws_nothing_from_the_global_generators(num_workers: int) -> None:
    recipe = DataLoader(dataset_of(20), 4, shuffle=True, num_workers=num_workers)
    seed_everything(3)
    next(iter(recipe.get_data_loader(repeat=True, seed=1)))
    after = (random.random(), numpy.random.rand(), torch.rand(()).item())
    seed_everything(3)
    assert after == (random.random(), numpy.random.rand(), torch.rand(()).item())


class Rolling(torch.utils.data.Dataset[tuple[float, float, float]]):
    """Draws a number of each generator for each record."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> tuple[float, float, float]:
        return random.random(), float(numpy.random.rand()), float(torch.rand(()))


def test_what_workers_draw_depends_on_the_batch_alone() -> None:
    def drawn(num_workers: int, skip: int) -> list[list[float]]:
        recipe = DataLoader(Rolling(), 4, shuffle=True, num_workers=num_workers)
        loader = recipe.get_data_loader(True, skip, 2, 1, seed=8)
        return [torch.stack(batch).flatten().tolist() for batch in islice(loader, 4)]

    whole = drawn(num_workers=2, skip=0)
    assert len({number for batch in whole for number in batch}) == 4 * 4 * 3
    assert drawn(num_workers=1, skip=0) == whole
    assert drawn(num_workers=2, skip=2)[:2] == whole[2:]


class Chunked(BatchSampler):
    """A batch sampler of the user's own that draws, and does not know its length."""

    def __init__(self) -> None:
        pass

    def __iter__(self) -> Iterator[list[int]]:
        for _ in range(random.randrange(3, 200)):
            yield [random.randrange(100), int(torch.randint(100, ()))]


@pytest.mark.parametrize(
    "arguments",
    [
        {"sampler": RandomSampler(range(37)), "batch_size": 4},
        {"sampler": WeightedRandomSampler([1.0] * 37, 50), "batch_size": 4, "drop_last": True},
        {"batch_sampler": Chunked()},
    ],
)
def test_a_sampler_of_the_users_is_the_same_on_all_ranks_and_after_a_pause(
    arguments: dict[str, Any],
) -> None:
    recipe = DataLoader(dataset_of(100), **arguments)

    def batches(skip: int, world: int, rank: int, count: int) -> list[list[int]]:
        torch.manual_seed(rank)  # ranks are seeded differently
        random.seed(rank)
        return list(islice(order(recipe, True, skip, world, rank, seed=6), count))

    whole = batches(0, 1, 0, 60)
    for rank in (0, 1):
        assert batches(0, 2, rank, 30) == whole[rank::2]
        assert batches(12, 2, rank, 18) == whole[rank::2][12:]


def test_outside_of_training_a_recipe_is_an_ordinary_loader() -> None:
    recipe = DataLoader(dataset_of(10), 4, shuffle=True)
    first, second = batches_of(recipe, 9), batches_of(recipe, 9)
    assert [len(batch) for batch in first] == [4, 4, 2]
    assert sorted(record for batch in first for record in batch) == list(range(10))
    assert first != second
    assert len(recipe) == 3


def test_a_loader_without_batches_cannot_be_repeated() -> None:
    recipe = DataLoader(dataset_of(3), 4, drop_last=True)
    assert len(recipe) == 0
    with pytest.raises(ValueError, match="no batches to repeat"):
        next(order(recipe, repeat=True))


def sharded(replicas: int) -> TorchDistributedSampler[int]:
    return TorchDistributedSampler(range(6), num_replicas=replicas, rank=0)  # type: ignore[arg-type]  # sized


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dataset": Stream(), "shuffle": True}, "Stream is an IterableDataset"),
        ({"dataset": Stream(), "sampler": in_order(3)}, "Stream is an IterableDataset"),
        ({"dataset": object()}, "object has no __len__"),
        ({"num_workers": -1}, "got num_workers -1"),
        ({"num_workers": 1, "timeout": -2}, "got timeout -2"),
        ({"persistent_workers": True}, "persistent_workers is for loader workers"),
        ({"prefetch_factor": 2, "timeout": 3}, "timeout, prefetch_factor is for loader workers"),
        ({"sampler": sharded(2)}, "got a torch DistributedSampler"),
        ({"batch_sampler": BatchSampler(sharded(2), 1, False)}, "got a torch Distr"),
        ({"batch_size": None}, "got batch_size None"),
        ({"batch_size": 0}, "got batch_size 0"),
        ({"sampler": in_order(3), "shuffle": True}, "sampler excludes shuffle"),
        ({"batch_sampler": batched(3, 1), "shuffle": True}, "batch_sampler excludes"),
        ({"batch_sampler": batched(3, 1), "batch_size": 2}, "batch_sampler excludes"),
    ],
)
def test_recipes_that_make_no_sense_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataLoader(**({"dataset": dataset_of(3)} | arguments))


@given(st.integers(0, 60), worlds)
def test_shards_are_as_long_as_what_they_give(total: int, world: int) -> None:
    for rank in range(world):
        sampler = DistributedSampler(in_order(total), world, rank)
        assert len(list(sampler)) == len(sampler) == shard_length(total, world, rank)
        assert list(sampler) == list(range(total))[rank::world]


def test_repeating_goes_on_for_ever_and_has_the_length_of_a_pass() -> None:
    sampler = RepeatSampler(in_order(3))
    assert list(islice(sampler, 7)) == [0, 1, 2, 0, 1, 2, 0]
    assert len(sampler) == 3
    assert len(RepeatBatchSampler(batched(5, 2))) == 3


def test_skipping_more_than_there_is_gives_nothing() -> None:
    assert list(SkipSampler(in_order(3), 2)) == [2]
    assert list(SkipSampler(in_order(3), 5)) == []
    assert list(SkipBatchSampler(batched(5, 2), 1)) == [[2, 3], [4]]
    assert len(SkipSampler(in_order(3), 2)) == 3


def test_reproducible_shuffles_differ_by_pass_and_not_by_run() -> None:
    def passes(seed: int) -> list[list[int]]:
        sampler = ReproducibleShuffleSampler(in_order(20), seed)
        return [list(sampler), list(sampler)]

    assert passes(1) == passes(1)
    assert passes(1)[0] != passes(1)[1]
    assert passes(1) != passes(2)
    shuffled = list(ReproducibleShuffleBatchSampler(batched(20, 4), 1))
    assert sorted(shuffled) == list(batched(20, 4))
    assert shuffled != list(batched(20, 4))


@pytest.mark.parametrize(("world", "rank"), [(0, 0), (2, 2), (2, -1)])
def test_a_rank_outside_of_the_world_is_refused(world: int, rank: int) -> None:
    with pytest.raises(ValueError, match="expected"):
        DistributedSampler(in_order(3), world, rank)
    with pytest.raises(ValueError, match="expected"):
        DistributedBatchSampler(batched(3, 1), world, rank)


@given(records_, batch_sizes, worlds, skips)
def test_an_adapted_batch_sampler_repeats_then_shards_then_skips(
    records: int, batch_size: int, world: int, skip: int
) -> None:
    for rank in range(world):
        adapted = adapt_batch_sampler(batched(records, batch_size), True, skip, world, rank)
        composed = DistributedBatchSampler(
            RepeatBatchSampler(batched(records, batch_size)), world, rank
        )
        expected = list(islice(composed, skip, skip + 4))
        assert list(islice(adapted, 4)) == expected
    unchanged = batched(records, batch_size)
    assert adapt_batch_sampler(unchanged) is unchanged


def test_every_problem_of_a_recipe_is_told_at_once() -> None:
    with pytest.raises(ValueError, match="batch_size 0") as caught:
        DataLoader(dataset_of(3), 0, sampler=in_order(3), shuffle=True, num_workers=-1)
    assert str(caught.value).splitlines() == [
        "DataLoader: got batch_size 0, expected at least 1",
        "DataLoader: sampler excludes shuffle; shuffle in the sampler",
        "DataLoader: got num_workers -1, expected 0 or more",
    ]
