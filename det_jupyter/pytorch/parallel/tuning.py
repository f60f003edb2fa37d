"""Finds the fastest size of DDP's buckets by trying several in the first batches.

    batch     1   2 3 4 5 6 7   8 9 ...                        56 57 ... 61   62
              -   5 MB:  w w    10 MB: w w m m m m   ...       the last: m    decided
                     m m m m                                   for all ranks
                                      w: not measured, m: measured

Each size is tried ROUNDS times, in turns, so that a computer which becomes slower meanwhile does
not bias the result. The size with the smallest median of the chief's times is chosen. The exchange
of small buckets begins earlier, large ones use the network better: which matters more depends on
model, network and device.

With three ranks or more, the order in which gradients are added depends on the size of buckets
while sizes are tried, and on the CPU also afterwards. So it depends on measured times, and two
runs may differ in the last bit. Two ranks add in only one order. A run that continues from a
checkpoint after the decision keeps it; from an earlier checkpoint it tries all sizes again.
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
UNMEASURED = 2  # batches after a change of size: DDP rebuilds its buckets after the first
MEASURED = 4  # batches after these


class BucketTuner:
    """Finds the bucket size of all models together. All ranks must have one.

    Args:
        models: The wrapped models; those that are not replicated are ignored.
        distributed: The ranks.
        device: The models' device.
        sizes_mb: Sizes to try; of those that hold all gradients in one bucket, only the first.

    Attributes:
        decision: None until the size is chosen; then a dict of `sizes_mb` (tried), `median_ms` (of
            a batch, by size), `chosen_mb` and `batches` (measured with each size).
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
        self._sizes = _useful_sizes(self._models, sizes_mb)
        self._times_s: list[list[float]] = [[] for _ in self._sizes]
        self._batches = 0  # with an exchange, at the present size
        self._tried = -1  # number of sizes tried before this one, over all rounds; -1: none yet
        self._last = time.perf_counter()

    def after_batch(self, *, exchanged: bool) -> None:
        """Measure the batch, continue to the next size or decide. Collective.

        Waits for the device while sizes are tried; after the decision it returns at once. Sizes
        are changed only after a batch in which gradients were exchanged.
        """
        if self.decision is not None or not self._models:
            return
        if self._device.type == "cuda":
            # Else the time would be that of queuing the batch.
            torch.cuda.synchronize(self._device)
        now = time.perf_counter()
        taken_s, self._last = now - self._last, now
        if not exchanged:
            return
        self._batches += 1
        if self._tried >= 0 and self._batches > UNMEASURED:
            self._times_s[self._tried % len(self._sizes)].append(taken_s)
        if self._tried < 0 or self._batches == UNMEASURED + MEASURED:
            self._next_size()
            self._last = time.perf_counter()

    def state(self) -> dict[str, Any] | None:
        """Return the decision, for a checkpoint."""
        return self.decision

    def restore(self, state: dict[str, Any] | None) -> None:
        """Restore the decision of an earlier run, if there is one. Collective."""
        if state is not None:
            self.decision = state
            self._use(state["chosen_mb"])

    def _next_size(self) -> None:
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


def _useful_sizes(models: Sequence[DistributedModel], sizes_mb: Sequence[float]) -> list[float]:
    """Return the sizes up to the first that holds any model's gradients in one bucket."""
    gradients = (
        sum(owner.nbytes for owner in model.parameters() if owner.requires_grad)
        for model in models
    )
    most_bytes = max(gradients, default=0)
    sizes = sorted(set(sizes_mb))
    smaller = [size for size in sizes if size * 2**20 < most_bytes]
    return sizes[: len(smaller) + 1]
