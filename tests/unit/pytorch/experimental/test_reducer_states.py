"""States of an inference's reducers: on any number of ranks the result has every value once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from det_jupyter.errors import ConfigError
from det_jupyter.pytorch import MetricReducer
from det_jupyter.pytorch.experimental.reducer_states import InferenceReducers
from tests.unit.pytorch.thread_ranks import ThreadRank, results, run_ranks

CPU = torch.device("cpu")


class Sum(MetricReducer):
    """A reducer without `state_dict`: its attributes are its state."""

    def __init__(self) -> None:
        self.total = 0

    def reset(self) -> None:
        self.total = 0

    def per_slot_reduce(self) -> int:
        return self.total

    def cross_slot_reduce(self, per_slot_metrics: list[int]) -> int:
        return sum(per_slot_metrics)


class Ranks(Sum):
    def cross_slot_reduce(self, per_slot_metrics: list[int]) -> int:
        return len(per_slot_metrics)


def listed(values: list[int]) -> list[int]:
    return values


def wrap(rank: ThreadRank) -> tuple[InferenceReducers, Any, Any]:
    reducers = InferenceReducers(rank, CPU)
    return reducers, reducers.wrap(Sum(), "sum"), reducers.wrap(listed, "values")


def process(batches: list[int]) -> Callable[..., Any]:
    """Return what a rank does with its batches: every `size`-th, as an inference divides them."""

    def run(rank: ThreadRank, folder: Path, restores: bool) -> dict[str, Any]:
        reducers, total, values = wrap(rank)
        if restores:
            reducers.restore(folder)
        for batch in batches[rank.rank :: rank.size]:
            reducers.took_part = True
            total.total += batch
            values.update(batch)
        metrics: dict[str, Any] = reducers.reduce()
        folder = folder.with_name(f"{folder.name}-later") if restores else folder
        reducers.save(folder)
        return metrics

    return run


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_later_run_adds_its_values_to_those_that_were_saved(tmp_path: Path, size: int) -> None:
    results(3, lambda rank: process([1, 2, 3, 4, 5, 6, 7])(rank, tmp_path, False))
    found = results(size, lambda rank: process([8, 9])(rank, tmp_path, True))
    assert found == size * [{"sum": 45, "values": [1, 2, 3, 4, 5, 6, 7, 8, 9]}]


def test_states_of_ranks_that_are_gone_are_saved_again(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "first-later"
    results(3, lambda rank: process([1, 2, 3])(rank, first, False))
    results(2, lambda rank: process([4])(rank, first, True))
    found = results(1, lambda rank: process([5])(rank, second, True))
    assert found == [{"sum": 15, "values": [1, 2, 3, 4, 5]}]


def test_a_rank_without_batches_is_left_out(tmp_path: Path) -> None:
    def run(rank: ThreadRank, restores: bool) -> dict[str, Any]:
        reducers = InferenceReducers(rank, CPU)
        reducers.wrap(Ranks(), "ranks")
        if restores:
            reducers.restore(tmp_path)
        reducers.took_part |= rank.rank == 0
        metrics = reducers.reduce()
        reducers.save(tmp_path)
        return metrics

    assert results(3, lambda rank: run(rank, False)) == 3 * [{"ranks": 1}]
    assert results(2, lambda rank: run(rank, True)) == 2 * [{"ranks": 1}]


def test_another_number_of_reducers_is_refused(tmp_path: Path) -> None:
    results(2, lambda rank: process([1, 2])(rank, tmp_path, False))

    def restore(rank: ThreadRank) -> None:
        reducers = InferenceReducers(rank, CPU)
        reducers.wrap(Sum(), "sum")
        reducers.restore(tmp_path)

    for outcome in run_ranks(2, restore):
        assert isinstance(outcome, ConfigError)
        assert "the processor wraps 1 reducers, and had 2 when" in str(outcome)


def test_a_state_that_a_safe_load_refuses_is_named(tmp_path: Path) -> None:
    def save(rank: ThreadRank) -> None:
        reducers, total, _ = wrap(rank)
        total.total = object()
        reducers.save(tmp_path)

    (outcome,) = run_ranks(1, save)
    assert isinstance(outcome, ConfigError)
    assert "what a reducer holds cannot be saved (builtins.object)" in str(outcome)
