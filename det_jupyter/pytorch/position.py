"""Where the training of a trial is, and which batches the optimizer steps at.

    aggregation_frequency 3, 8 batches in all       batch   0 1 2 | 3 4 5 | 6 7
    the optimizer steps                                         x       x     x

A window of batches whose gradients are summed ends with every third batch, and with the last of
the training: what is left over is stepped too, averaged over the batches it has.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from det_jupyter.config.lengths import TrainingUnits


@dataclass(slots=True)
class Position:
    """The batch in training. The loop writes it; context and schedulers read it."""

    aggregation_frequency: int = 1
    units: TrainingUnits | None = None  # None before the training
    batch_idx: int = 0
    first_batch_idx: int = 0  # of this run
    end: int = sys.maxsize  # batches of the whole training

    @property
    def is_step(self) -> bool:
        """Whether the optimizer steps at this batch."""
        done = self.batch_idx + 1
        return done % self.aggregation_frequency == 0 or done == self.end

    @property
    def window(self) -> range:
        """The batches since the previous optimizer step, this one included."""
        start = self.batch_idx - self.batch_idx % self.aggregation_frequency
        return range(start, self.batch_idx + 1)

    @property
    def next_step(self) -> int:
        """The batch of the optimizer step after this one's (beyond the end: as if it went on)."""
        following = self.window.start + 2 * self.aggregation_frequency - 1
        return following if self.batch_idx + 1 == self.end else min(following, self.end - 1)

    def started_units(self) -> TrainingUnits:
        """Return the units of training.

        Raises:
            RuntimeError: Training has not started, so they are not known.
        """
        if self.units is None:
            raise RuntimeError("training hasn't started: there is no epoch or batch yet")
        return self.units
