"""Linear scaling of learning rates with the batch size, after a gradual warm-up.

    k = records per optimizer step / base_batch_size

    base_batch_size 64, 256 records per step (k = 4), a warm-up of 6 batches

    batch     0     1     2     3     4     5     6     7 ...
    factor    1   1.5     2   2.5     3   3.5     4     4

The trial keeps the learning rates that are right for `base_batch_size`. Every step is taken with
them times the factor, and afterwards they are the trial's again: learning rate schedulers and
checkpoints see nothing of it. As the factor depends on nothing but the batch, a resumed run takes
the steps that it would have taken.

Source: Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour" (2017), sections
2.1 and 2.2. Their momentum correction is not needed: torch's SGD keeps momentum without the
learning rate. A k below 1 scales down, in the same way.
"""

from __future__ import annotations

from typing import Any

import torch

from det_jupyter.config.sections import LargeBatch as Rules
from det_jupyter.contract.values.lengths import TrainingUnits
from det_jupyter.pytorch.steps.position import Position


class LargeBatch:
    """Scales the learning rates of a trial's optimizers, by `optimizations.large_batch`."""

    def __init__(self, rules: Rules, global_batch_size: int) -> None:
        self._warmup = rules.warmup
        self._scale = global_batch_size / rules.base_batch_size

    def factor(self, batch_idx: int, units: TrainingUnits, *, batches_per_step: int = 1) -> float:
        """Return what learning rates are multiplied by at a batch, from 0 at the beginning.

        The gradients of a step are averaged over `batches_per_step` batches.
        """
        scale = self._scale * batches_per_step
        warmup = units.to_batches(self._warmup)
        if batch_idx >= warmup:
            return scale
        return 1.0 + (scale - 1.0) * batch_idx / warmup

    def attach(
        self, optimizer: torch.optim.Optimizer, position: Position, *, averages: bool = True
    ) -> None:
        """Scale the learning rates of all param groups during each `optimizer.step()`.

        Before the training nothing is scaled. Unless the gradients of a window of batches are
        averaged, their sum is itself a step that is larger by their number.
        """
        own: list[tuple[dict[str, Any], Any]] = []
        batches_per_step = position.aggregation_frequency if averages else 1

        def scale(*_: object) -> None:
            if position.units is None:
                return
            factor = self.factor(
                position.batch_idx, position.units, batches_per_step=batches_per_step
            )
            for group in optimizer.param_groups:
                if (lr := group.get("lr")) is not None:  # None: the optimizer finds its own
                    own.append((group, lr))
                    group["lr"] = lr * factor

        def restore(*_: object) -> None:
            for group, lr in own:
                group["lr"] = lr
            own.clear()

        optimizer.register_step_pre_hook(scale)
        optimizer.register_step_post_hook(restore)
