"""Noticing gradients that came from `loss.backward()`, not from `context.backward`.

On several ranks they are not weighed by each rank's records, and perhaps not exchanged. Computing
some that are thrown away is fine (an attack on the inputs), so they are looked for as an optimizer
steps. A hook on one parameter of the optimizer notices them: on each, hooks would cost 1.2 µs for
every parameter in every batch. What does not reach that parameter is left to `check_ranks`.
"""

from __future__ import annotations

import torch


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
