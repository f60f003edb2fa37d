"""The position in a training, and the batches at which the optimizer steps.

    aggregation_frequency 3, 8 batches in all       batch   0 1 2 | 3 4 5 | 6 7
    the optimizer steps                                         x       x     x

Gradients are summed over a window of batches, which ends with every third batch here, and with the
last batch of the training: that shorter window is averaged over its own batches. If the training
is extended afterwards, batch 8 is a window of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from det_jupyter.contract.values.lengths import TrainingUnits


@dataclass(slots=True)
class Position:
    """The batch that is being trained. The loop writes it; context and schedulers read it."""

    aggregation_frequency: int = 1
    units: TrainingUnits | None = None  # None before the training
    batch_idx: int = 0
    first_batch_idx: int = 0  # first batch of this run
    end: int = sys.maxsize  # number of batches of the whole training
    has_ended: bool = False  # the training: steps of optimizers are not part of it any more
    cut_at: int = 0  # batches trained at the last optimizer step, where this window begins
    # For a window whose batches have weights (batch_weight.py): the first weight, and the sum.
    window_weights: tuple[Any, Any] | None = None

    @property
    def is_step(self) -> bool:
        """Whether the optimizer steps at this batch."""
        done = self.batch_idx + 1
        return done % self.aggregation_frequency == 0 or done == self.end

    @property
    def window(self) -> range:
        """The batches since the previous optimizer step, this one included."""
        return range(max(self._regular_start, self.cut_at), self.batch_idx + 1)

    @property
    def next_step(self) -> int:
        """The batch of the optimizer step after the one of this window; may be beyond the end."""
        following = self._regular_start + 2 * self.aggregation_frequency - 1
        return following if self.batch_idx + 1 == self.end else min(following, self.end - 1)

    @contextmanager
    def training(self) -> Iterator[None]:
        """Train in the block. What the user's code does later with the optimizers is its own."""
        self.has_ended = False
        try:
            yield
        finally:
            self.has_ended = True

    def state(self) -> dict[str, Any]:
        """Return what a later run needs to continue, for a checkpoint."""
        weights = self.window_weights and tuple(map(float, self.window_weights))
        return {"cut_at": self.cut_at, "window_weights": weights}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.cut_at = state["cut_at"]
        self.window_weights = state.get("window_weights")  # older checkpoints have none

    @property
    def _regular_start(self) -> int:
        return self.batch_idx - self.batch_idx % self.aggregation_frequency

    def started_units(self) -> TrainingUnits:
        """Return `units`.

        Raises:
            RuntimeError: Training has not started, so there are none.
        """
        if self.units is None:
            raise RuntimeError("training hasn't started: there is no epoch or batch yet")
        return self.units
