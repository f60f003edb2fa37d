"""Gradients and losses on several ranks, where the trial computes them itself.

`RawBackward` detects gradients of `loss.backward()`, which are not weighted by each rank's
records, and perhaps not exchanged. Gradients that the trial discards (an adversarial input) are
allowed, so the check is made as an optimizer steps. One parameter of the optimizer has a hook; a
hook on each would cost 1.2 us per parameter and batch. `check_ranks` finds what this one misses.

`averaging` is for optimizers that compute the loss again (LBFGS). They choose their steps by it,
so a closure returns the mean over the records of all ranks: else the ranks' steps would differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from det_jupyter.core import DistributedContext


class RawBackward:
    """Knows whether an optimizer's gradients have parts that `context.backward` did not compute.

    Args:
        parameters: Of the optimizer. The last that is trained is watched: often the one next to
            the loss, which most losses reach.
    """

    def __init__(self, parameters: list[torch.Tensor]) -> None:
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        self.is_ours = False  # the backward pass that is under way
        self._was_raw = False
        self._watched = trained[-1] if trained else None
        if self._watched is not None:
            self._watched.register_post_accumulate_grad_hook(self._note)

    def forget_zeroed(self) -> None:
        """Forget raw gradients that have been thrown away; before others are added."""
        self._was_raw = self.is_there()

    def is_there(self) -> bool:
        """Return whether the gradients have such parts now."""
        if not self._was_raw or self._watched is None or self._watched.grad is None:
            return False
        return bool(self._watched.grad.norm() != 0)  # waits for the device, after raw ones only

    def _note(self, _: torch.Tensor) -> None:
        if not self.is_ours:
            self._was_raw = True


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
