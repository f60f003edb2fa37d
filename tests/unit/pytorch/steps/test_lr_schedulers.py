"""When learning rate schedulers step, what may be wrapped, and lengths in scripts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from det_jupyter.config import Length
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch import LRScheduler
from det_jupyter.pytorch.rules import Batch, Counts, Epoch
from det_jupyter.pytorch.steps.gradient_checks import check_not_shared, check_optimizer

Mode = LRScheduler.StepMode


def scheduler(mode: LRScheduler.StepMode, frequency: int = 1) -> LRScheduler:
    return LRScheduler(object(), mode, frequency)


def steps(wrapped: LRScheduler, aggregation: int, num_steps: int, per_epoch: int) -> list[int]:
    """Return how often it steps after each optimizer step."""
    ends = range(0, (num_steps + 1) * aggregation, aggregation)
    return [
        wrapped.steps_after(range(a, b), b + aggregation - 1, lambda batch: batch // per_epoch)
        for a, b in pairwise(ends)
    ]


@pytest.mark.parametrize(
    ("mode", "frequency", "expected"),
    [
        (Mode.STEP_EVERY_BATCH, 1, [4, 4, 4]),
        (Mode.STEP_EVERY_BATCH, 3, [1, 1, 2]),
        (Mode.STEP_EVERY_OPTIMIZER_STEP, 1, [1, 1, 1]),
        (Mode.STEP_EVERY_OPTIMIZER_STEP, 8, [0, 1, 0]),
        (Mode.STEP_EVERY_EPOCH, 1, [1, 0, 1]),  # ahead of the step in batches 7 and 15
        (Mode.STEP_EVERY_EPOCH, 2, [0, 0, 1]),
        (Mode.MANUAL_STEP, 1, [0, 0, 0]),
    ],
)
def test_steps_with_four_batches_an_optimizer_step_and_six_an_epoch(
    mode: LRScheduler.StepMode, frequency: int, expected: list[int]
) -> None:
    assert steps(scheduler(mode, frequency), 4, 3, per_epoch=6) == expected


@given(st.integers(1, 5), st.integers(1, 30), st.integers(1, 7), st.integers(1, 5))
def test_whatever_the_aggregation_no_step_is_lost_and_none_is_made_twice(
    aggregation: int, num_steps: int, per_epoch: int, frequency: int
) -> None:
    num_batches = aggregation * num_steps
    every_batch = steps(
        scheduler(Mode.STEP_EVERY_BATCH, frequency), aggregation, num_steps, per_epoch
    )
    assert sum(every_batch) == num_batches // frequency
    every_epoch = steps(
        scheduler(Mode.STEP_EVERY_EPOCH, frequency), aggregation, num_steps, per_epoch
    )
    # From the first optimizer step, in batch `aggregation - 1`, to the one that comes next.
    first, last = (aggregation - 1) // per_epoch, (num_batches + aggregation - 1) // per_epoch
    assert sum(every_epoch) == last // frequency - first // frequency


@pytest.mark.parametrize("frequency", [0, -1, 1.5, True, "2"])
def test_a_frequency_is_a_whole_number_from_1(frequency: Any) -> None:
    with pytest.raises(ConfigError, match=r"got frequency .+, expected at least 1"):
        scheduler(Mode.STEP_EVERY_BATCH, frequency)


def test_a_mode_is_one_of_the_four_and_a_metric_is_given_by_hand() -> None:
    with pytest.raises(TypeError, match="got step_mode 'epoch', expected LRScheduler"):
        LRScheduler(object(), "epoch")  # type: ignore[arg-type]
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    with pytest.raises(ConfigError, match="ReduceLROnPlateau needs a metric to step"):
        LRScheduler(plateau, Mode.STEP_EVERY_EPOCH)
    assert LRScheduler(plateau, Mode.MANUAL_STEP).scheduler is plateau


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


@pytest.mark.parametrize(
    ("unit", "length", "period"),
    [
        (Batch(100), Length("batches", 100), Length("batches", 100)),
        (Epoch(3), Length("epochs", 3), Length("epochs", 3)),
        (Batch(0), Length("batches", 0), Length("batches", 1)),  # as Determined takes it
        (Epoch(-2), Length("epochs", -2), Length("epochs", 1)),
    ],
)
def test_lengths_and_periods_of_a_script(
    unit: Batch | Epoch, length: Length, period: Length
) -> None:
    assert (unit.to_length(), unit.to_period()) == (length, period)


def test_counts_are_a_period_and_no_length() -> None:
    assert Batch([5, 30]).to_period() == Counts("batches", [5, 30])
    with pytest.raises(TypeError, match=r"got Epoch\(value=\[5\]\), expected one number: Epoch"):
        Epoch([5]).to_length()


@pytest.mark.parametrize("value", [True, 1.5, None])
def test_what_is_no_amount_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="expected a whole number, or a container of them"):
        Batch(value)
