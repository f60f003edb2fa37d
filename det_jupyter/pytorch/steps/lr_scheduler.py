"""When a learning rate scheduler steps: never on a batch after which the optimizer did not step.

    aggregation_frequency 4, frequency 1       batch  0 1 2 3 | 4 5 6 7 | 8 9 ...
    optimizer steps                                         x         x
    STEP_EVERY_BATCH                                        4         4     times, one per batch
    STEP_EVERY_OPTIMIZER_STEP                               1         1
    STEP_EVERY_EPOCH, epochs of 6 batches                             1     ahead of the first step
    MANUAL_STEP                                                             of epoch 1, at batch 11

`frequency` counts batches, epochs, and (Determined's rule) for optimizer steps batches too.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import torch

from det_jupyter.errors import ConfigError


class LRScheduler:
    """A learning rate scheduler together with when to step it."""

    class StepMode(Enum):
        """When to step."""

        STEP_EVERY_EPOCH = 1
        STEP_EVERY_BATCH = 2
        MANUAL_STEP = 3
        STEP_EVERY_OPTIMIZER_STEP = 4

    def __init__(self, scheduler: Any, step_mode: StepMode, frequency: int = 1) -> None:
        if not isinstance(step_mode, LRScheduler.StepMode):
            raise TypeError(
                f"wrap_lr_scheduler: got step_mode {step_mode!r}, expected LRScheduler.StepMode."
                f"{', '.join(mode.name for mode in LRScheduler.StepMode)}"
            )
        if isinstance(frequency, bool) or not isinstance(frequency, int) or frequency < 1:
            raise ConfigError(
                f"wrap_lr_scheduler: got frequency {frequency!r}, expected at least 1"
            )
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau
        if isinstance(scheduler, plateau) and step_mode is not LRScheduler.StepMode.MANUAL_STEP:
            raise ConfigError(
                "wrap_lr_scheduler: ReduceLROnPlateau needs a metric to step; wrap it with "
                "LRScheduler.StepMode.MANUAL_STEP and call its step(metric) yourself"
            )
        self.scheduler = scheduler
        self.step_mode = step_mode
        self.frequency = frequency

    def steps_after(self, window: range, next_step: int, epoch_of: Callable[[int], int]) -> int:
        """Return how often to step after an optimizer step.

        Args:
            window: Batches since the previous optimizer step; the step was at the last of them.
            next_step: Batch of the next optimizer step.
            epoch_of: Gives the epoch of a batch.
        """
        batch_idx = window[-1]
        match self.step_mode:
            case LRScheduler.StepMode.STEP_EVERY_BATCH:
                due = window
            case LRScheduler.StepMode.STEP_EVERY_OPTIMIZER_STEP:
                due = range(batch_idx, batch_idx + 1)
            case LRScheduler.StepMode.STEP_EVERY_EPOCH:
                due = range(epoch_of(batch_idx), epoch_of(next_step))
            case LRScheduler.StepMode.MANUAL_STEP:
                return 0
        return sum((index + 1) % self.frequency == 0 for index in due)
