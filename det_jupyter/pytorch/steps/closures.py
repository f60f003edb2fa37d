"""Closures of optimizers that compute the loss again (LBFGS), where there are several ranks.

Such an optimizer decides by the loss how far it goes, and whether it goes on. Ranks that decided
by the loss of their own records would take different steps, so the closure returns the mean over
all records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from det_jupyter.core import DistributedContext


def averaging(
    closure: Callable[[], Any], weight: float, distributed: DistributedContext
) -> Callable[[], Any]:
    """Return a closure whose loss is the mean over the ranks. Each call of it is collective.

    Args:
        closure: Returns a loss: a number, or a tensor with one; or nothing.
        weight: Of this rank's loss; 1 on average.
        distributed: The ranks.
    """

    def averaged() -> Any:
        loss = closure()
        if isinstance(loss, torch.Tensor):
            loss = loss.detach()
        elif not isinstance(loss, int | float):
            return loss
        own = weight * float(loss) if weight else 0.0  # of no records, it may be NaN
        total = distributed.reduce_(torch.tensor([own], dtype=torch.float64), "sum")
        mean = float(total) / distributed.size
        return torch.full_like(loss, mean) if isinstance(loss, torch.Tensor) else mean

    return averaged
