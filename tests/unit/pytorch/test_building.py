"""What a trial is told before training begins."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

from det_jupyter.pytorch.data import DataLoader
from det_jupyter.pytorch.training.building import warn_of_lonely_records
from tests.unit.pytorch.data_support import numbers, training


def open_with(records: int, *models: nn.Module, rank: int = 0, **options: Any) -> None:
    """Open training data on one of two ranks with two records each, and have them looked at."""
    stream = training(DataLoader(numbers(records), 2, **options), rank, 2)
    distributed = SimpleNamespace(is_chief=rank == 0)
    context: Any = SimpleNamespace(distributed=distributed, models=list(models))
    warn_of_lonely_records(context, stream)


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
