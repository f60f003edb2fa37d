"""Checks of wrapped models and optimizers; what a closure returns on several ranks: the mean."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.steps.gradient_checks import averaging, check_not_shared, check_optimizer
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
        return averaging(lambda: losses[rank.rank], lambda: WEIGHTS[rank.rank], rank)()

    assert results(2, run) == [mean, mean]


def test_the_loss_of_a_rank_without_records_does_not_count() -> None:
    def run(rank: ThreadRank) -> Any:
        loss, weight = [(3.0, 2.0), (float("nan"), 0.0)][rank.rank]
        return averaging(lambda: loss, lambda: weight, rank)()

    assert results(2, run) == [3.0, 3.0]


def test_a_parameter_belongs_to_one_wrapped_model() -> None:
    shared = nn.Linear(2, 2)
    first, second = nn.Sequential(shared), nn.Sequential(nn.Linear(2, 2), shared)
    check_not_shared(first, [])
    check_not_shared(nn.Linear(2, 2), [first])
    with pytest.raises(ConfigError, match=r"wrap_model: 1\.weight of this Sequential belongs to"):
        check_not_shared(second, [first])
    for parameter in shared.parameters():
        parameter.requires_grad_(False)  # what is frozen is not exchanged
    check_not_shared(second, [first])


def test_an_optimizer_has_parameters_of_wrapped_models_alone() -> None:
    model, other = nn.Linear(2, 2), nn.Linear(2, 2)
    own = torch.optim.SGD(model.parameters(), lr=0.1)
    both = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1)
    check_optimizer(own, [model], 1)
    check_optimizer(both, [model, other], 2)
    with pytest.raises(ConfigError, match="it has parameters of no wrapped model"):
        check_optimizer(both, [model], 1)
    with pytest.raises(ConfigError, match="got backward_passes_per_step 0, expected at least 1"):
        check_optimizer(own, [model], 0)
    with pytest.raises(TypeError, match=r"got Linear, expected a torch\.optim\.Optimizer"):
        check_optimizer(model, [model], 1)
