"""When learning rate schedulers step."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from det_jupyter.config import TrainingUnits
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch import LRScheduler
from det_jupyter.pytorch.steps.position import Position

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


def optimizer() -> torch.optim.SGD:
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)


@pytest.mark.parametrize(
    ("mode", "frequency", "aggregation", "expected"),
    [
        (Mode.STEP_EVERY_BATCH, 1, 1, {i: 1 for i in range(12)}),
        (Mode.STEP_EVERY_BATCH, 3, 1, {2: 1, 5: 1, 8: 1, 11: 1}),
        (Mode.STEP_EVERY_BATCH, 1, 4, {3: 4, 7: 4, 11: 4}),
        (Mode.STEP_EVERY_BATCH, 3, 4, {3: 1, 7: 1, 11: 2}),
        (Mode.STEP_EVERY_OPTIMIZER_STEP, 1, 4, {3: 1, 7: 1, 11: 1}),
        (Mode.STEP_EVERY_OPTIMIZER_STEP, 8, 4, {7: 1}),
        (Mode.STEP_EVERY_EPOCH, 1, 1, {5: 1, 11: 1}),
        (Mode.STEP_EVERY_EPOCH, 2, 1, {11: 1}),
        (Mode.STEP_EVERY_EPOCH, 1, 4, {3: 1, 11: 1}),
        (Mode.MANUAL_STEP, 1, 1, {}),
    ],
)
def test_schedulers_step_with_the_optimizer_and_as_their_mode_says(
    mode: Mode, frequency: int, aggregation: int, expected: dict[int, int]
) -> None:
    units = TrainingUnits(global_batch_size=1, batches_per_epoch=6)
    scheduler = LRScheduler(torch.optim.lr_scheduler.StepLR(optimizer(), 1), mode, frequency)
    steps = {}
    for batch_idx in range(12):
        position = Position(aggregation, batch_idx=batch_idx)
        if position.is_step:
            count = scheduler.steps_after(position.window, position.next_step, units.epoch_of)
            if count:
                steps[batch_idx] = count
    assert steps == expected
