"""The batches of ranks: the same records in the same order, whatever the ranks and the pauses."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data._utils.collate import default_collate_fn_map

from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.data import DataLoader, Share
from det_jupyter.pytorch.data.division import Division
from det_jupyter.pytorch.data.fetch import Fetch, TensorColumns, collate_records, draws_nothing
from det_jupyter.pytorch.data.order import Order
from det_jupyter.pytorch.data.streams import DataLoaderStream
from det_jupyter.pytorch.data.workers import init_worker
from det_jupyter.pytorch.rng import seed_everything
from tests.unit.pytorch.data_support import (
    Counting,
    Rolling,
    counted,
    jitter,
    numbers,
    states,
    taken,
    training,
    validation,
)

few = settings(max_examples=60)
counts = st.integers(1, 40)
sizes_ = st.lists(st.integers(1, 4), min_size=1, max_size=5)
skips = st.integers(0, 25)


def streams(
    dataset: Any, sizes: list[int], *, skip: int = 0, **options: Any
) -> list[DataLoaderStream]:
    """Return the streams of ranks with these batch sizes."""
    return [
        DataLoaderStream(
            DataLoader(dataset, size, **options),
            Division(sizes, rank),
            seed=5,
            skip=skip,
            repeat=True,
        )
        for rank, size in enumerate(sizes)
    ]


def joined(ranks: list[DataLoaderStream], steps: int) -> list[list[int]]:
    """Return the records of each global batch; every rank's share has to tell the same total."""
    found = [taken(stream, steps) for stream in ranks]
    batches = []
    for step in zip(*found, strict=True):
        batch = [record for records in counted(step) for record in records]
        assert {share.total for _, share in step} == {len(batch)}
        assert sum(share.records for _, share in step) == len(batch)
        assert all(records for records, _ in step)  # a stand-in at least
        batches.append(batch)
    return batches


def test_ten_records_on_two_ranks() -> None:
    recipe = DataLoader(numbers(10), 2)
    expected = [
        [[0, 1], [4, 5], [8], [0, 1], [4, 5], [8]],
        [[2, 3], [6, 7], [9], [2, 3], [6, 7], [9]],
    ]
    for rank in (0, 1):
        stream = training(recipe, rank, 2)
        assert stream.batches_per_epoch == 3
        assert [records for records, _ in taken(stream, 6)] == expected[rank]


def test_a_rank_without_records_trains_on_a_stand_in_that_counts_for_nothing() -> None:
    recipe = DataLoader(numbers(7), 2)
    last = [taken(training(recipe, rank, 3), 2)[1] for rank in range(3)]
    assert last == [([6], Share(1, 1)), ([6], Share(0, 1)), ([6], Share(0, 1))]


@given(counts, sizes_, st.booleans(), st.booleans(), skips)
@few
def test_a_step_sees_the_same_records_on_any_number_of_ranks_from_any_step_on(
    records: int, sizes: list[int], shuffle: bool, drop_last: bool, skip: int
) -> None:
    options = {"shuffle": shuffle, "drop_last": drop_last}
    if drop_last and records < sum(sizes):
        return
    alone = joined(streams(numbers(records), [sum(sizes)], **options), skip + 6)
    assert joined(streams(numbers(records), sizes, skip=skip, **options), 6) == alone[skip:]
    for rank, stream in enumerate(streams(numbers(records), sizes, skip=skip, **options)):
        whole = taken(streams(numbers(records), sizes, **options)[rank], skip + 6)
        assert taken(stream, 6) == whole[skip:]


@given(counts, sizes_, st.booleans())
@few
def test_an_epoch_is_one_exact_pass(records: int, sizes: list[int], shuffle: bool) -> None:
    ranks = streams(numbers(records), sizes, shuffle=shuffle)
    length = ranks[0].batches_per_epoch
    assert length is not None
    batches = joined(ranks, 3 * length)
    for epoch in range(3):
        seen = [r for batch in batches[epoch * length : (epoch + 1) * length] for r in batch]
        assert sorted(seen) == list(range(records))


@given(counts, sizes_, st.booleans())
@few
def test_ranks_validate_every_record_once_with_no_stand_ins(
    records: int, sizes: list[int], shuffle: bool
) -> None:
    seen: list[int] = []
    for rank, size in enumerate(sizes):
        recipe = DataLoader(numbers(records), size, shuffle=shuffle)
        stream = DataLoaderStream(recipe, Division(sizes, rank), seed=5, skip=0, repeat=False)
        found = taken(stream, 1000)
        assert all(len(part) == share.records > 0 for part, share in found)
        assert taken(stream, 1000) == found  # the next validation
        seen += [record for part, _ in found for record in part]
    assert sorted(seen) == list(range(records))


def test_ranks_validate_contiguous_rows_and_may_have_none() -> None:
    recipe = DataLoader(numbers(5), 2)
    found = [[records for records, _ in taken(validation(recipe, r, 2), 9)] for r in (0, 1)]
    assert found == [[[0, 1], [4]], [[2, 3]]]
    assert taken(validation(DataLoader(numbers(1)), 1, 2), 9) == []
    assert taken(validation(DataLoader(numbers(0)), 0, 2), 9) == []


class Chunked(BatchSampler):
    """A batch sampler of the user's own that draws, and does not know its length."""

    def __init__(self) -> None:
        self.epochs: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def __iter__(self) -> Iterator[list[int]]:
        for _ in range(random.randrange(3, 12)):
            yield [random.randrange(100), *torch.randperm(100)[: random.randrange(3)].tolist()]

    __len__ = None  # type: ignore[assignment]  # it cannot tell


SAMPLERS = [
    {"sampler": RandomSampler(range(37))},
    {"sampler": SequentialSampler(range(37))},
    {"sampler": SubsetRandomSampler(range(37))},
    {"sampler": WeightedRandomSampler([1.0] * 37, 50), "drop_last": True},
    {"sampler": [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]},
]


@pytest.mark.parametrize("options", SAMPLERS)
@pytest.mark.parametrize("skip", [0, 1, 30])
def test_a_sampler_of_the_users_is_the_same_on_any_ranks_and_after_a_pause(
    options: dict[str, Any], skip: int
) -> None:
    whole = joined(streams(numbers(100), [4], **options), skip + 20)
    torch.manual_seed(skip)  # whatever else is drawn
    random.seed(skip)
    assert joined(streams(numbers(100), [1, 2, 1], skip=skip, **options), 20) == whole[skip:]


def test_samplers_that_keep_nothing_can_be_jumped_and_others_are_counted() -> None:
    class Own(Sampler[int]):
        def __len__(self) -> int:
            return 3

        def __iter__(self) -> Iterator[int]:
            return iter(range(3))

    def can_jump(**options: Any) -> bool:
        return DataLoader(numbers(9), **options).order.can_jump

    assert can_jump()
    assert can_jump(shuffle=True)
    assert can_jump(sampler=RandomSampler(range(9)))
    assert can_jump(batch_sampler=BatchSampler(RandomSampler(range(9)), 2, False))
    assert not can_jump(sampler=RandomSampler(range(9), generator=torch.Generator()))
    assert not can_jump(sampler=Own())
    assert not can_jump(batch_sampler=BatchSampler(Own(), 2, False))
    assert not can_jump(batch_sampler=Chunked())


def test_resuming_after_many_passes_makes_only_the_one_it_is_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passes: list[int] = []
    indices_of = Order._indices

    def noted(order: Order, seed: int, pass_idx: int) -> Any:
        passes.append(pass_idx)
        return indices_of(order, seed, pass_idx)

    monkeypatch.setattr(Order, "_indices", noted)
    taken(training(DataLoader(numbers(10), 2, shuffle=True), skip=5_000_003), 1)
    assert passes == [1_000_000]


@given(st.integers(1, 5), skips)
@few
def test_a_batch_samplers_batches_go_whole_to_the_ranks_in_turn(size: int, skip: int) -> None:
    sampler = Chunked()
    recipe = DataLoader(numbers(100), batch_sampler=sampler)
    passes = [list(recipe.order.batches(5, p)) for p in range(30)]
    assert sampler.epochs == list(range(30))
    groups = [p[i : i + size] for p in passes for i in range(0, len(p), size)]
    for rank in range(size):
        expected = [
            (g[rank], Share(len(g[rank]), sum(map(len, g))))
            if rank < len(g)
            else (g[-1], Share(0, sum(map(len, g))))
            for g in groups[skip : skip + 8]
        ]
        assert taken(training(recipe, rank, size, skip=skip), len(expected)) == expected


def test_a_batch_sampler_makes_epochs_of_as_many_steps_as_groups() -> None:
    recipe = DataLoader(numbers(10), batch_sampler=BatchSampler(range(10), 2, False))
    assert [training(recipe, 0, size).batches_per_epoch for size in (1, 2, 3)] == [5, 3, 2]
    assert training(DataLoader(numbers(9), batch_sampler=Chunked())).batches_per_epoch is None


def test_an_empty_batch_of_a_batch_sampler_is_named() -> None:
    recipe = DataLoader(numbers(10), batch_sampler=[[1], [2], [3], []])
    with pytest.raises(ConfigError, match="batch_sampler: batch 3 has no records"):
        taken(training(recipe, 0, 2), 3)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (
            DataLoader(numbers(3), 2, drop_last=True),
            "build_training_data_loader: TensorDataset has 3 records, fewer than the global batch "
            "of 4, and drop_last leaves none; expected at least one batch in a pass",
        ),
        (
            DataLoader([]),
            "build_training_data_loader: list has no records, expected at least one",
        ),
        (
            DataLoader(numbers(3), sampler=[]),
            "build_training_data_loader: list of TensorDataset has no records, "
            "expected at least one",
        ),
    ],
)
def test_training_without_batches_is_refused_at_the_start(
    recipe: DataLoader, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        training(recipe, 0, 2)
    assert str(caught.value) == message


def test_a_sampler_that_yields_nothing_is_one_clear_error() -> None:
    class Silent(Sampler[int]):
        def __iter__(self) -> Iterator[int]:
            return iter([])

    with pytest.raises(ConfigError, match="Silent of TensorDataset has no records"):
        taken(training(DataLoader(numbers(3), sampler=Silent())), 1)


def test_what_is_drawn_while_loading_depends_on_the_batch_and_leaves_the_rank_alone() -> None:
    recipe = DataLoader(Rolling(), 4, shuffle=True, collate_fn=jitter)

    def drawn(skip: int, rank: int, state: int) -> list[list[float]]:
        seed_everything(state)
        numpy.random.normal()  # leaves the other of a pair in store
        before = states()
        stream = training(recipe, rank, 2, skip=skip)
        found = [batch.tolist() for batch, _ in islice(stream, 5)]
        assert states() == before
        return found

    whole = drawn(0, 0, state=1)
    assert drawn(2, 0, state=2)[:3] == whole[2:]
    assert drawn(0, 1, state=1) != whole
    assert len({number for batch in whole for number in batch}) > 5 * 3 * 4


def test_numbers_drawn_around_a_batch_are_those_without_one() -> None:
    def around(*, loads: bool) -> list[float]:
        seed_everything(3)
        batches = iter(training(DataLoader(Rolling(), 2)))
        found = []
        for _ in range(7):
            if loads:
                next(batches)
            found += [random.random(), numpy.random.normal(), torch.rand(()).item()]
        return found

    assert around(loads=True) == around(loads=False)


@pytest.mark.parametrize(
    ("dataset", "quiet"),
    [
        (numbers(3), True),
        (Subset(numbers(3), [1]), True),
        (ConcatDataset([numbers(3), numbers(2)]), True),
        (StackDataset(x=numbers(3), y=numbers(3)), True),
        ([1, 2], True),
        (range(4), True),
        (torch.arange(3), True),
        (Rolling(), False),
        (Subset(Rolling(), [1]), False),
        (ConcatDataset([numbers(3), Rolling()]), False),
    ],
)
def test_what_is_known_to_draw_nothing(dataset: Any, quiet: bool) -> None:
    assert draws_nothing(dataset) is quiet


@given(st.data(), st.booleans(), st.integers(0, 2))
@few
def test_rows_of_tensors_are_picked_as_torch_puts_them_together(
    data: st.DataObject, shuffle: bool, subsets: int
) -> None:
    dataset: Any = TensorDataset(
        torch.randn(20, 3), torch.arange(20), torch.rand(20, 2, 2, dtype=torch.float64) > 0.5
    )
    plain: Any = [dataset[i] for i in range(20)]
    for _ in range(subsets):
        chosen = data.draw(st.lists(st.integers(-len(dataset), len(dataset) - 1), min_size=6))
        dataset, plain = Subset(dataset, chosen), Subset(plain, chosen)
    mine = islice(training(DataLoader(dataset, 4, shuffle=shuffle)), 5)
    theirs = islice(training(DataLoader(plain, 4, shuffle=shuffle)), 5)
    for (batch, share), (expected, expected_share) in zip(mine, theirs, strict=True):
        assert share == expected_share
        for column, expected_column in zip(batch, expected, strict=True):
            assert torch.equal(column, expected_column)
            assert column.dtype == expected_column.dtype
            assert column.is_contiguous()


def test_a_batch_shares_no_memory_with_the_dataset() -> None:
    dataset = numbers(6)
    for batch, _ in islice(training(DataLoader(dataset, 3)), 2):
        batch[0].zero_()
    assert dataset.tensors[0].tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("skip", [0, 1, 7])
def test_what_is_written_to_the_data_in_one_pass_counts_in_the_next(skip: int) -> None:
    dataset = numbers(6)  # three batches in a pass, fewer than are loaded at once
    batches = iter(training(DataLoader(dataset, 2), skip=skip))
    trained = [next(batches)[0][0].tolist() for _ in range(3 - skip % 3)]
    assert trained == [[0, 1], [2, 3], [4, 5]][skip % 3 :]
    dataset.tensors[0].add_(10)
    assert next(batches)[0][0].tolist() == [10, 11]


def test_large_batches_are_loaded_one_by_one() -> None:
    dataset = TensorDataset(torch.zeros(4, 1 << 14))
    batches = iter(training(DataLoader(dataset, 1)))
    next(batches)
    dataset.tensors[0].add_(1)
    assert next(batches)[0][0].max() == 1


def test_only_plain_tensors_are_picked_by_columns() -> None:
    sparse = TensorDataset(torch.eye(3).to_sparse())
    assert TensorColumns.of(sparse) is None
    assert TensorColumns.of(Rolling()) is None
    assert TensorColumns.of(Subset(numbers(3), ["a"])) is None  # type: ignore[list-item]  # no number
    picked = TensorColumns.of(numbers(9))
    assert picked is not None
    assert [column.tolist() for column in picked.select([-1, 0])] == [[8, 0]]


def test_a_datasets_own_way_to_get_many_records_is_used() -> None:
    class Many(Rolling):
        def __getitems__(self, indices: list[int]) -> list[int]:
            assert type(indices) is list
            return [10 * index for index in indices]

    assert taken(training(DataLoader(Many(), 3)), 2) == [
        ([0, 10, 20], Share(3, 3)),
        ([30, 40, 50], Share(3, 3)),
    ]


def test_an_error_while_loading_says_which_batch_it_was() -> None:
    class Fragile(Rolling):
        def __getitem__(self, index: int) -> Any:
            if index == 14:
                raise ZeroDivisionError("no such record")
            return index

    stream = training(DataLoader(Fragile(), 2), 1, 2, skip=1)
    with pytest.raises(ZeroDivisionError, match="no such record") as caught:
        taken(stream, 9)
    assert caught.value.__notes__ == ["This was while rank 1 loaded batch 3 of Fragile."]


def test_the_whole_of_the_data_can_be_had_as_a_torch_loader() -> None:
    loader = DataLoader(numbers(5), 2).get_data_loader(seed=3)
    assert isinstance(loader, TorchDataLoader)
    assert [batch[0].tolist() for batch in loader] == [[0, 1], [2, 3], [4]]
    assert len(loader) == 3
    assert (type(loader.dataset), loader.batch_size) == (TensorDataset, 2)


def test_workers_that_are_not_forked_can_be_sent_what_they_need() -> None:
    dataset = Rolling()
    fetch = Fetch(dataset, jitter, 3)
    sent, init = pickle.loads(pickle.dumps((fetch, partial(init_worker, dataset, None))))
    assert torch.equal(sent.load([1, 2], 4, 0), fetch.load([1, 2], 4, 0))
    assert init.args[0] is sent.dataset
    reader = DataLoader(Counting(3), 2).reader(Division([2], 0), seed=1, skip=0, repeat=False)
    assert [batch.tolist() for batch, _ in pickle.loads(pickle.dumps(reader))] == [[0, 1], [2]]


def test_torchs_own_collate_function_may_be_named() -> None:
    named = taken(training(DataLoader(numbers(9), 2, collate_fn=default_collate)), 3)
    assert named == taken(training(DataLoader(numbers(9), 2)), 3)


def same(one: Any, other: Any) -> bool:
    """Return whether these are of the same types, and hold the same bits."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        one, other = list(one.items()), list(other.items())
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@pytest.mark.parametrize(
    "records",
    [
        [(torch.tensor([i, 2.0]), torch.tensor(i), i, float(i), "text", [i, i]) for i in range(3)],
        [(numpy.float32(i), numpy.arange(2) + i, (torch.ones(2), {"a": i})) for i in range(2)],
        [(torch.nn.Parameter(torch.ones(2)),) for _ in range(2)],
        [(), ()],
        [[torch.ones(2), 1], [torch.zeros(2), 2]],
        [torch.ones(2), torch.zeros(2)],
    ],
)
def test_records_are_put_together_as_torch_does(records: list[Any]) -> None:
    assert same(collate_records(records), default_collate(records))


def test_records_that_torch_refuses_are_refused_in_its_words() -> None:
    with pytest.raises(RuntimeError, match="each element in list of batch should be of equal"):
        collate_records([(torch.ones(1), 1), (torch.ones(1),)])
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        collate_records([(torch.ones(1),), (torch.ones(2),)])


@pytest.mark.parametrize("kind", [torch.Tensor, tuple])
def test_what_a_user_has_taught_torchs_collate_function_counts(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taught(batch: Any, *, collate_fn_map: Any = None) -> str:
        return "taught"

    monkeypatch.setitem(default_collate_fn_map, kind, taught)
    records = [(torch.ones(1),)]
    assert same(collate_records(records), default_collate(records))
    assert "taught" in collate_records(records)
