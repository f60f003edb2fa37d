"""What the ranks agree on when they open their data, and preparing it on one rank first."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchDataLoader

from det_jupyter.core import DistributedContext, local_chief_first
from det_jupyter.pytorch.data import DataLoader, open_training, open_validation
from tests.integration.parallel_ranks import RankRunner
from tests.unit.pytorch.data_support import numbers, records_of

Answers = dict[str, list[Any]]
Task = Callable[[DistributedContext], Any]


def _first(context: DistributedContext, loader: Any, count: int, **options: Any) -> Any:
    stream = open_training(loader, context, seed=3, skip=0, batch_length=len, **options)
    found = [[records_of(b), s.records, s.total] for b, s in islice(stream, count)]
    stream.close()
    return found


def unequal_batch_sizes(context: DistributedContext) -> Any:
    return _first(context, DataLoader(numbers(10), 3 - context.rank), 4)


def different_lengths(context: DistributedContext) -> Any:
    return _first(context, DataLoader(numbers(10 + context.rank)), 1)


def different_kinds(context: DistributedContext) -> Any:
    return _first(context, DataLoader(numbers(4)) if context.rank else None, 1)


def different_generators(context: DistributedContext) -> Any:
    generator = torch.Generator().manual_seed(context.rank)
    loader = DataLoader(numbers(4), shuffle=context.rank == 0, generator=generator)
    return _first(context, loader, 1)


def uneven_plain_loaders(context: DistributedContext) -> Any:
    loader: Any = TorchDataLoader([torch.tensor(i) for i in range(4 + 3 * context.rank)], 2)  # type: ignore[arg-type]  # a list will do
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = _first(context, loader, 3)
    context.barrier()
    return [found, [str(warning.message) for warning in told]]


def an_empty_plain_loader(context: DistributedContext) -> Any:
    return _first(context, [[1]] * context.rank, 1)


def validations(context: DistributedContext) -> Any:
    loader = DataLoader(numbers(5), 2, num_workers=1, persistent_workers=True)
    found = []
    stream = open_validation(loader, context, seed=3, batch_length=len)
    for _ in range(2):
        found.append([records_of(batch) for batch, _ in stream])
    stream.close()
    return found


def prepared(context: DistributedContext) -> Any:
    with local_chief_first(context):
        marker = Path("prepared")
        was_there = marker.exists()
        marker.touch()
    return was_there


def preparation_fails(context: DistributedContext) -> Any:
    with local_chief_first(context):
        raise OSError(f"no network on rank {context.rank}")


def preparation_dies(_: DistributedContext) -> None:
    with local_chief_first(DistributedContext.from_torch_distributed()):
        os._exit(0)


def answers_to(_: DistributedContext, folder: Path) -> dict[str, Any]:
    """Return what each task returns on this rank, or its error."""
    os.chdir(folder)
    context = DistributedContext.from_torch_distributed()
    found: dict[str, Any] = {}
    for task in TASKS:
        try:
            found[task.__name__] = {"returned": task(context)}
        except Exception as error:
            found[task.__name__] = {"raised": f"{type(error).__name__}: {error}"}
    return found


TASKS: list[Task] = [
    unequal_batch_sizes,
    different_lengths,
    different_kinds,
    different_generators,
    an_empty_plain_loader,
    uneven_plain_loaders,
    validations,
    prepared,
    preparation_fails,
]


@pytest.fixture(scope="module")
def answers(run: RankRunner, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """Return what both ranks answer to each task."""
    first, second = run(answers_to, 2, tmp_path_factory.mktemp("ranks"))
    return {task: [first[task], second[task]] for task in first}


def test_the_global_batch_is_the_sum_of_the_ranks_batch_sizes(
    answers: Answers,
) -> None:
    assert answers["unequal_batch_sizes"] == [
        {"returned": [[[0, 1, 2], 3, 5], [[5, 6, 7], 3, 5]] * 2},
        {"returned": [[[3, 4], 2, 5], [[8, 9], 2, 5]] * 2},
    ]


@pytest.mark.parametrize(
    ("task", "problems"),
    [
        ("different_lengths", ["the number of records is 10 on rank 0 and 11 on rank 1"]),
        (
            "different_kinds",
            [
                "the loader is builtins.NoneType on rank 0 and "
                "det_jupyter.pytorch.data.loader.DataLoader of a TensorDataset on rank 1"
            ],
        ),
        (
            "different_generators",
            [
                "the order is shuffle=True, drop_last=False on rank 0 and "
                "shuffle=False, drop_last=False on rank 1",
                "the seed of the order is 0 on rank 0 and 1 on rank 1",
            ],
        ),
        ("an_empty_plain_loader", ["the loader of rank 0 has no batches, expected at least one"]),
    ],
)
def test_every_rank_learns_what_does_not_fit(
    answers: Answers, task: str, problems: list[str]
) -> None:
    for answer in answers[task]:
        lines = answer["raised"].removeprefix("ConfigError: ").splitlines()
        for line, problem in zip(lines, problems, strict=True):
            assert line.startswith(f"build_training_data_loader: {problem}")


def test_loaders_of_different_lengths_stay_in_step(answers: Answers) -> None:
    told = []
    for answer in answers["uneven_plain_loaders"]:
        batches, warned = answer["returned"]
        assert batches == [[[0, 1], 2, 4], [[2, 3], 2, 4], [[0, 1], 2, 4]]
        told += warned
    assert told == [  # once, by the chief
        "build_training_data_loader: the ranks' loaders differ in length: rank 0 has 2, "
        "rank 1 has 4; every pass ends with the shortest, and what the others have beyond it "
        "is not trained"
    ]


def test_ranks_validate_their_rows_with_workers_that_live_on(
    answers: Answers,
) -> None:
    assert answers["validations"] == [
        {"returned": [[[0, 1], [4]]] * 2},
        {"returned": [[[2, 3]]] * 2},
    ]


def test_one_rank_prepares_before_the_others(answers: Answers) -> None:
    assert answers["prepared"] == [{"returned": False}, {"returned": True}]


def test_a_preparation_that_fails_is_told_to_the_others_at_once(
    answers: Answers,
) -> None:
    assert answers["preparation_fails"] == [
        {"raised": "OSError: no network on rank 0"},
        {
            "raised": "RuntimeError: local_chief_first: rank 0, which goes first, "
            "raised OSError: no network on rank 0"
        },
    ]


def test_nobody_waits_for_a_rank_that_died_preparing(run: RankRunner) -> None:
    began = time.monotonic()
    with pytest.raises(AssertionError, match="rank 0: ended without an answer\nrank 1: Traceback"):
        run(preparation_dies, 2)
    assert time.monotonic() - began < 45
