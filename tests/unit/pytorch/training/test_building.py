"""What a trial is told before training begins."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from det_jupyter.core import DistributedContext
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch import PyTorchTrialContext
from det_jupyter.pytorch.data import DataLoader
from det_jupyter.pytorch.training.building import (
    check_agreement,
    note_few_records,
    warn_of_single_records,
)
from tests.problems import said
from tests.unit.pytorch.data_support import numbers, training
from tests.unit.pytorch.thread_ranks import ThreadRank, run_ranks


def open_with(records: int, *models: nn.Module, rank: int = 0, **options: Any) -> None:
    """Open training data on one of two ranks with two records each, and have them looked at."""
    stream = training(DataLoader(numbers(records), 2, **options), rank, 2)
    distributed = SimpleNamespace(is_chief=rank == 0)
    context: Any = SimpleNamespace(distributed=distributed, models=list(models))
    warn_of_single_records(context, stream)


def test_a_last_batch_with_too_few_records_to_normalize_is_warned_of() -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))
    with pytest.warns(UserWarning, match=r"a rank gets 1 record: .* drop_last=True") as caught:
        open_with(10, nn.Linear(1, 1), model)
    (warning,) = caught
    assert "1 (BatchNorm1d) of model 1" in str(warning.message)


def test_nothing_is_warned_of_where_a_single_record_does_no_harm() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_with(8, nn.BatchNorm1d(1))
        open_with(10, nn.BatchNorm1d(1), drop_last=True)
        open_with(10, nn.LayerNorm(1), nn.SyncBatchNorm(1))
        open_with(10, nn.BatchNorm1d(1), rank=1)  # the chief has said it


@pytest.mark.parametrize(
    ("records", "batch_size", "is_chief", "said"),
    [
        (1400, 4096, True, ["global_batch_size: 4,096, and the training data has 1,400 records: "
                            "each batch is a whole pass, and trains on 1,400; a smaller one has "
                            "more optimizer steps per epoch"]),
        (1400, 4096, False, []),
        (64, 64, True, []),
    ],
)  # fmt: skip
def test_data_with_fewer_records_than_a_batch_is_noticed(
    records: int, batch_size: int, is_chief: bool, said: list[str]
) -> None:
    notices: list[str] = []
    core: Any = SimpleNamespace(
        distributed=SimpleNamespace(is_chief=is_chief, rank=0),
        sink=SimpleNamespace(write=lambda record: notices.append(record.text)),
    )
    note_few_records(core, DataLoader(numbers(records), 2), batch_size)
    assert notices == said


Build = Callable[[PyTorchTrialContext], None]


def build(context: PyTorchTrialContext) -> None:
    """Build what one rank has, past the wrapping, in which DDP wants real processes."""
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    context.models.append(model)
    context.optimizers.append(torch.optim.SGD(model.parameters(), lr=0.1))
    context.wrap_reducer(sum, "total", for_validation=False)


def check(changed: Build, size: int = 3) -> list[Any]:
    """Return what the check comes to on each rank; the last one is changed."""

    def run(rank: ThreadRank) -> int:
        context = PyTorchTrialContext(distributed=rank, device=torch.device("cpu"))
        build(context)
        if rank.rank == size - 1:
            changed(context)
        check_agreement(context)
        return rank.collectives

    return run_ranks(size, run)


def test_the_same_trial_on_all_ranks_costs_one_exchange() -> None:
    assert check(lambda context: None) == [1, 1, 1]


def test_one_rank_agrees_with_itself_and_looks_at_nothing() -> None:
    check_agreement(SimpleNamespace(distributed=DistributedContext()))  # type: ignore[arg-type]  # all that is looked at


def another_reducer(context: PyTorchTrialContext) -> None:
    context.wrap_reducer(max, "largest")


def another_phase(context: PyTorchTrialContext) -> None:
    context.reducers = type(context.reducers)()
    context.wrap_reducer(sum, "total")


def another_optimizer(context: PyTorchTrialContext) -> None:
    context.optimizers[0] = torch.optim.Adam(context.models[0].parameters())


def a_scheduler(context: PyTorchTrialContext) -> None:
    scheduler = torch.optim.lr_scheduler.StepLR(context.optimizers[0], 3)
    context.lr_schedulers.append(SimpleNamespace(scheduler=scheduler))  # type: ignore[arg-type]  # all that is looked at


def no_model(context: PyTorchTrialContext) -> None:
    context.models.clear()


def a_wider_layer(context: PyTorchTrialContext) -> None:
    context.models[0] = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(5, 1))


def another_buffer(context: PyTorchTrialContext) -> None:
    context.models[0].register_buffer("own", torch.zeros(2, dtype=torch.int64))


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        (
            another_reducer,
            "wrap_reducer: rank 0 has wrapped reducer 'total' for training, rank 2 reducer "
            "'total' for training, reducer 'largest' for training and validation; all ranks have "
            "to build the same trial",
        ),
        (
            another_phase,
            "wrap_reducer: rank 0 has wrapped reducer 'total' for training, rank 2 reducer "
            "'total' for training and validation; all ranks have to build the same trial",
        ),
        (
            another_optimizer,
            "wrap_optimizer: rank 0 has wrapped SGD, rank 2 Adam; all ranks have to build the "
            "same trial",
        ),
        (
            a_scheduler,
            "wrap_lr_scheduler: rank 0 has wrapped nothing, rank 2 StepLR; all ranks have to "
            "build the same trial",
        ),
        (
            no_model,
            "wrap_model: rank 0 has wrapped Sequential, rank 2 nothing; all ranks have to build "
            "the same trial",
        ),
        (
            a_wider_layer,
            "wrap_model: model 0 (Sequential) has 2.weight [1, 4] float32 on rank 0 where it has "
            "2.weight [1, 5] float32 on rank 2; all ranks have to build the same trial",
        ),
        (
            another_buffer,
            "wrap_model: model 0 (Sequential) has 1.running_mean [4] float32 on rank 0 where it "
            "has own [2] int64 on rank 2; all ranks have to build the same trial",
        ),
    ],
)
def test_all_ranks_are_told_what_differs_and_where(changed: Build, problem: str) -> None:
    for outcome in check(changed):
        assert isinstance(outcome, ConfigError)
        assert said(outcome.problems) == [problem]


def test_all_that_differs_is_told_at_once() -> None:
    def both(context: PyTorchTrialContext) -> None:
        another_optimizer(context)
        a_wider_layer(context)

    for outcome in check(both, size=2):
        assert [problem.split(":")[0] for problem in said(outcome.problems)] == [
            "wrap_optimizer",
            "wrap_model",
        ]
