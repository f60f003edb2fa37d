"""What a batch does to the weights: gradients that count by records, and steps at windows' ends.

`backward`          the loss is scaled (fp16), and weighed by this rank's share of the records; DDP
                    averages gradients over the ranks, once per window
`step`              at the last batch of a window: divide by the window's batches, unscale (fp16),
                    clip, step, zero
`after_step`        update the scaler, once for all optimizers
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.data import Share
from det_jupyter.pytorch.position import Position
from det_jupyter.pytorch.precision import Precision


class Stepping:
    """Computes gradients and steps the optimizers of one trial, on one rank.

    Args:
        position: Says where windows end.
        precision: Scales losses.
    """

    def __init__(self, position: Position, precision: Precision) -> None:
        self.precision = precision
        self._position = position
        self._averages: dict[int, bool] = {}  # by id of the optimizer: whether to average windows
        self._weight = 1.0  # of this rank's gradients
        self._has_stepped = False  # an optimizer, in this batch

    def add(self, optimizer: torch.optim.Optimizer, *, averages: bool) -> None:
        """Take an optimizer, which divides sums over a window by its batches or leaves them."""
        self._averages[id(optimizer)] = averages

    def weigh(self, share: Share, size: int) -> None:
        """Let the next gradients count by this rank's records, of `size` ranks."""
        self._weight = share.records * size / max(share.total, 1)

    def backward(self, loss: torch.Tensor, gradient: torch.Tensor | None, *options: bool) -> None:
        """Compute gradients; `options` as in `torch.Tensor.backward`."""
        loss = self.precision.scale(loss)
        if self._weight != 1.0:  # a factor on the gradient leaves the graph as it is
            gradient = self._weight * (torch.ones_like(loss) if gradient is None else gradient)
        loss.backward(gradient, *options)

    def step(
        self,
        optimizer: torch.optim.Optimizer,
        clip_grads: Callable[[Any], Any] | None,
        auto_zero_grads: bool,
        scaler: Any,
    ) -> None:
        """Step the optimizer, if this batch ends a window.

        Raises:
            ConfigError: It is not wrapped, or shall keep gradients that windows sum.
        """
        position = self._position
        self._check(optimizer, auto_zero_grads)
        if not position.is_step:
            return
        if position.aggregation_frequency > 1 and self._averages[id(optimizer)]:
            _divide_gradients(optimizer, len(position.window))
        if clip_grads is not None:
            self._clip(optimizer, clip_grads)
        if scaler is not None:
            scaler.step(optimizer)
        else:
            self.precision.step(optimizer)
            self._has_stepped = True
        if auto_zero_grads:
            optimizer.zero_grad()

    def after_step(self) -> None:
        """Update the scaler, if an optimizer has stepped by it in this batch."""
        if self._has_stepped:
            self.precision.update()
            self._has_stepped = False

    def _check(self, optimizer: torch.optim.Optimizer, auto_zero_grads: bool) -> None:
        if id(optimizer) not in self._averages:
            raise ConfigError(
                [
                    f"step_optimizer: this {type(optimizer).__name__} is not wrapped, so its "
                    "state would not be saved; pass what context.wrap_optimizer returned"
                ]
            )
        frequency = self._position.aggregation_frequency
        if frequency > 1 and not auto_zero_grads:
            raise ConfigError(
                [
                    "step_optimizer: auto_zero_grads=False does not go with "
                    f"optimizations.aggregation_frequency {frequency}; "
                    "gradients are summed between the steps as it is"
                ]
            )

    def _clip(self, optimizer: torch.optim.Optimizer, clip_grads: Callable[[Any], Any]) -> None:
        if not callable(clip_grads):
            raise ConfigError(
                [
                    f"step_optimizer: got a {type(clip_grads).__name__} as clip_grads, expected a "
                    "function of the list of parameters, such as "
                    "`lambda params: torch.nn.utils.clip_grad_norm_(params, 1.0)`"
                ]
            )
        self.precision.unscale(optimizer)
        clip_grads(parameters_of(optimizer))


def parameters_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Return the parameters of all its groups."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _divide_gradients(optimizer: torch.optim.Optimizer, divisor: int) -> None:
    for parameter in parameters_of(optimizer):
        if parameter.grad is not None:
            parameter.grad.div_(divisor)
