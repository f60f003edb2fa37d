"""The size of DDP's buckets, found by trying some in the first batches.

    batch     1   2 3 4 5 6 7   8 9 ...                        56 57 ... 61   62
              -   5 MB:  w w    10 MB: w w m m m m   ...       the last: m    decided
                     m m m m                                   for all ranks
                                      w: not measured, m: measured

Each size is tried ROUNDS times, in turns, so that a computer which grows slower meanwhile does not
decide; the smallest median of the chief's times wins. Small buckets begin to be exchanged early,
large ones use the network well: which matters more depends on model, network and device.

While sizes are tried, and on the CPU with three ranks or more after that too, which gradients are
added together first depends on the size, and so on measured times: two runs may differ in the last
bit. Two ranks add in only one order. A run that continues from a checkpoint after the decision
keeps it; from an earlier checkpoint it tries all sizes again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import torch
from torch import nn

from det_jupyter.core import DistributedContext
from det_jupyter.pytorch.parallel.replicas import DistributedModel

SIZES_MB = (5, 10, 25, 50, 100)
ROUNDS = 2
UNMEASURED = 2  # batches after a change: DDP lays its buckets out again after the first
MEASURED = 4


class BucketTuner:
    """Finds the bucket size of all models together. All ranks must have one.

    Args:
        models: The wrapped ones; those that are not replicated are left alone.
        distributed: This rank's place among the ranks.
        device: Where they are trained.
        sizes_mb: What is tried; sizes that hold all gradients in one bucket count as one.

    Attributes:
        decision: What was tried and chosen, of plain values, once it is known: `sizes_mb`,
            `median_ms` (of a batch, by size), `chosen_mb`, `batches` (measured with each size).
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        distributed: DistributedContext,
        device: torch.device,
        *,
        sizes_mb: Sequence[float] = SIZES_MB,
    ) -> None:
        self.decision: dict[str, Any] | None = None
        self._models = [model for model in models if isinstance(model, DistributedModel)]
        self._distributed = distributed
        self._device = device
        self._sizes = _that_differ(self._models, sizes_mb)
        self._times_s: list[list[float]] = [[] for _ in self._sizes]
        self._batches = 0  # that exchanged gradients, with the size now tried
        self._tried = -1  # how many sizes were tried before this one, over all rounds
        self._last = time.perf_counter()

    def after_batch(self, *, exchanged: bool) -> None:
        """Measure the batch, continue to the next size or decide. Collective.

        Waits for the device while it tries; once decided, returns at once. Changes only happen
        after a batch in which gradients were exchanged.
        """
        if self.decision is not None or not self._models:
            return
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)  # or the time of a batch is that to queue it
        now = time.perf_counter()
        taken_s, self._last = now - self._last, now
        if not exchanged:
            return
        self._batches += 1
        if self._tried >= 0 and self._batches > UNMEASURED:
            self._times_s[self._tried % len(self._sizes)].append(taken_s)
        if self._tried < 0 or self._batches == UNMEASURED + MEASURED:
            self._go_on()
            self._last = time.perf_counter()

    def state(self) -> dict[str, Any] | None:
        """Return the decision, for a checkpoint."""
        return self.decision

    def restore(self, state: dict[str, Any] | None) -> None:
        """Go on with a decision that was made before. Collective."""
        if state is not None:
            self.decision = state
            self._use(state["chosen_mb"])

    def _go_on(self) -> None:
        self._tried += 1
        self._batches = 0
        if len(self._sizes) > 1 and self._tried < ROUNDS * len(self._sizes):
            self._use(self._sizes[self._tried % len(self._sizes)])
        else:
            self.decision = self._distributed.broadcast(self._decide())
            self._use(self.decision["chosen_mb"])

    def _decide(self) -> dict[str, Any]:
        medians = [median(times) if times else 0.0 for times in self._times_s]
        return {
            "sizes_mb": list(self._sizes),
            "median_ms": [round(seconds * 1e3, 4) for seconds in medians],
            "chosen_mb": self._sizes[medians.index(min(medians))],
            "batches": len(self._times_s[0]),
        }

    def _use(self, size_mb: float) -> None:
        for model in self._models:
            model.set_bucket_size(size_mb)


def _that_differ(models: Sequence[DistributedModel], sizes_mb: Sequence[float]) -> list[float]:
    """Return the sizes up to the first that holds any model's gradients in one bucket."""
    gradients = (
        sum(it.nbytes for it in model.parameters() if it.requires_grad) for model in models
    )
    most_bytes = max(gradients, default=0)
    sizes = sorted(set(sizes_mb))
    smaller = [size for size in sizes if size * 2**20 < most_bytes]
    return sizes[: len(smaller) + 1]
