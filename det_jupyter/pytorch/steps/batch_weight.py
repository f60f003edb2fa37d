"""How much a rank's loss counts in the mean over all ranks, and over a window of batches.

    loss is a mean over       weight of a rank        total, of all ranks
    records (the default)     its records             known from the batch's share: no exchange
    something else: tokens    `backward(weight=...)`  one all-reduce of one number

A gradient is multiplied by `weight * ranks / total`, and DDP divides the sum by the ranks. In a
window of batches, `total` is that of the window's first batch for all of them, since the window's
own is known only at its end; the optimizer's step makes up for it (`window_divisor`). Records are
not weighed over a window: there each batch counts as one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy
import torch
import torch.distributed as dist

from det_jupyter.core import DistributedContext
from det_jupyter.pytorch.data import Share
from det_jupyter.pytorch.messages import TrialMistake
from det_jupyter.pytorch.steps.position import Position

Number = float | torch.Tensor  # a tensor on a GPU is not read: that would wait for the device


class BatchWeight:
    """The weight of this rank in the batch that is being trained.

    Args:
        position: The batch and its window; keeps the sums of a window, which are saved.
        distributed: The ranks.

    Attributes:
        factor: The factor of this rank's gradients; its mean over the ranks is 1.
        given: The weight of this batch, from `backward(weight=...)`; None: its number of records.
        sum_ranks: The collective; the caller may put a timer around it.
    """

    def __init__(self, position: Position, distributed: DistributedContext) -> None:
        self._position = position
        self._distributed = distributed
        self._share: Share | None = None
        self._of_records: float  # the factor of that share
        self._passes = 0  # backward passes of this batch
        self.factor: Number = 1.0
        self.given: Number | None = None
        self.sum_ranks: Callable[[torch.Tensor], object] = dist.all_reduce

    def begin_batch(self, share: Share) -> None:
        """Begin a batch, with this share of its records."""
        if share is not self._share:  # all full batches have the same object
            self._share = share
            self._of_records = share.records * self._distributed.size / max(share.total, 1)
        self.factor, self.given, self._passes = self._of_records, None, 0
        if self._position.window_weights and len(self._position.window) == 1:
            self._position.window_weights = None

    def begin_backward(self, weight: Any, device: torch.device) -> None:
        """Set `factor` for a backward pass. Collective if there is a weight.

        Args:
            weight: The weight of this rank's loss, such as a number of tokens; None: its records.
            device: The device of the loss.

        Raises:
            TrialMistake: `weight` is not valid, or the passes of a window cannot be weighed
                together.
        """
        position = self._position
        is_first, self._passes = self._passes == 0, self._passes + 1
        if weight is None:
            self.factor = self._of_records
            if position.window_weights is not None and position.aggregation_frequency > 1:
                raise _mistake(_ONE_WEIGHT)
            return
        own = _checked(weight, device)
        if self._share is not None and not self._share.records:
            own = own * 0  # a stand-in has no weight
        if position.aggregation_frequency == 1:
            self.given = own if is_first else self.given
            self.factor = own * self._distributed.size / _or_one(self._total(own, device))
            return
        if is_first:
            self._add_to_window(own, device)
        elif self.given is None or self.given != own:
            raise _mistake(_ONE_WEIGHT)
        self.given = own
        assert position.window_weights is not None
        self.factor = own * self._distributed.size / position.window_weights[0]

    def window_divisor(self, *, averages: bool) -> Number:
        """Return the number that divides the gradients of the window that ends.

        `averages`: the gradients are averaged over the window's batches; else they are summed, and
        the number is smaller by the factor of these batches.
        """
        position = self._position
        num_batches = len(position.window)
        if position.aggregation_frequency == 1:
            return 1.0
        if position.window_weights is None:
            return num_batches if averages else 1.0
        first, total = position.window_weights
        whole: Number = _or_one(total) / first
        return whole if averages else whole / num_batches

    def _add_to_window(self, own: Number, device: torch.device) -> None:
        position = self._position
        total = self._total(own, device)
        if position.window_weights is not None:
            first, before = position.window_weights
            position.window_weights = first, before + total
        elif len(position.window) == 1:
            position.window_weights = _or_one(total), total
        else:
            raise _mistake(_ONE_WEIGHT)

    def _total(self, own: Number, device: torch.device) -> Number:
        """Return the sum over the ranks. Collective."""
        if self._distributed.size == 1:
            return own
        total = torch.as_tensor(own, dtype=torch.float64, device=device).clone()
        self.sum_ranks(total)
        return float(total) if device.type == "cpu" else total


_ONE_WEIGHT = (
    "context.backward: with optimizations.aggregation_frequency above 1, all backward passes of a "
    "window need a weight or none does, and those of one batch the same; add up the losses of a "
    "batch and call context.backward once, or set aggregation_frequency to 1"
)


def _checked(weight: Any, device: torch.device) -> Number:
    if isinstance(weight, torch.Tensor) and weight.numel() == 1 and not weight.is_complex():
        own = weight.detach().reshape(()).to(device, torch.float64, non_blocking=True)
        if device.type != "cpu":
            return own
        weight = own.item()
    if isinstance(weight, numpy.generic | numpy.ndarray) and weight.ndim == 0:
        weight = weight.item()
    is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if not is_number or not 0 <= weight < math.inf:
        given = f"shape {list(weight.shape)}" if isinstance(weight, torch.Tensor) else repr(weight)
        raise _mistake(
            f"context.backward: got the weight {given}, expected a number of at least 0: of the "
            "tokens, say, over which this rank's loss is the mean"
        )
    return float(weight)


def _or_one(total: Number) -> Number:
    """Return the number, or 1 for 0: then all numbers to be divided are 0 too."""
    if isinstance(total, torch.Tensor):
        return torch.where(total > 0, total, 1.0)
    return total or 1.0


def _mistake(text: str) -> TrialMistake:
    return TrialMistake("train_batch", f"train_batch: {text}")
