"""What an optimizer's closure returns on several ranks: the mean over all records."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from det_jupyter.pytorch.steps.gradient_checks import averaging
from tests.unit.pytorch.thread_ranks import ThreadRank, results

WEIGHTS = (1.5, 0.5)  # 3 records and 1


@pytest.mark.parametrize(
    ("losses", "mean"),
    [
        ((1.0, 5.0), 2.0),
        ((1, 5), 2.0),
        ((torch.tensor([1.0], requires_grad=True), torch.tensor([5.0])), torch.tensor([2.0])),
        ((None, None), None),
    ],
)
def test_a_closure_returns_the_mean_over_all_records(losses: Any, mean: Any) -> None:
    def run(rank: ThreadRank) -> Any:
        return averaging(lambda: losses[rank.rank], WEIGHTS[rank.rank], rank)()

    assert results(2, run) == [mean, mean]


def test_the_loss_of_a_rank_without_records_does_not_count() -> None:
    def run(rank: ThreadRank) -> Any:
        loss, weight = [(3.0, 2.0), (float("nan"), 0.0)][rank.rank]
        return averaging(lambda: loss, weight, rank)()

    assert results(2, run) == [3.0, 3.0]
