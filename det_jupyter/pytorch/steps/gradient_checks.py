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
from torch import nn

from det_jupyter.core import DistributedContext
from det_jupyter.pytorch.messages import TrialMistake

CREATE_GRAPH = (
    "train_batch: context.backward(..., create_graph=True) does not work on several ranks: "
    "gradients that have a graph of their own cannot be exchanged. For a penalty on gradients, "
    "compute them by torch.autograd.grad(..., create_graph=True), add the penalty to the loss, "
    "and call context.backward(loss); else set resources.slots_per_trial to 1"
)

_ZERO_GRAD = torch.optim.Optimizer.zero_grad


class RawBackward:
    """Knows whether an optimizer's gradients have parts that `context.backward` did not compute.

    Args:
        parameters: Of the optimizer. The last that is trained is watched: often the one next to
            the loss, which most losses reach.
    """

    def __init__(self, parameters: list[torch.Tensor]) -> None:
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        self.is_ours = False  # the backward pass that is under way
        self.on_ours: Callable[[], None] | None = None  # called within it
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
        elif self.on_ours is not None:
            self.on_ours()


def averaging(
    closure: Callable[[], Any], weight: float, distributed: DistributedContext
) -> Callable[[], Any]:
    """Return a closure whose loss is the mean over the ranks. Each call of it is collective.

    Args:
        closure: Returns a loss: a number, or a tensor with one; or nothing.
        weight: Of this rank's loss; 1 on average.
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


def parameters_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Return the parameters of all its groups."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def zero_gradients(optimizer: torch.optim.Optimizer) -> None:
    """Do what `optimizer.zero_grad()` does.

    Torch's own opens a range of the profiler and switches the compiler off meanwhile: [m] 25 us,
    against 1 us here. An optimizer with another one is asked for it.
    """
    if type(optimizer).zero_grad is not _ZERO_GRAD or "zero_grad" in vars(optimizer):
        optimizer.zero_grad()
        return
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


def check_direct_step(optimizer: torch.optim.Optimizer, frequency: int, scaler: Any) -> None:
    """Check an `optimizer.step()` of the trial's own.

    Raises:
        TrialMistake: It differs from `context.step_optimizer`.
    """
    if frequency > 1:
        reason = (
            f"optimizations.aggregation_frequency is {frequency}: it would step too often, "
            "with gradients that are not exchanged yet"
        )
    elif scaler:
        reason = "fp16 scales the loss, and its gradients are to be scaled back"
    else:
        return
    raise TrialMistake(
        "train_batch",
        f"train_batch: {type(optimizer).__name__}.step() was called directly, but "
        f"{reason}; write self.context.step_optimizer(optimizer) instead",
    )


def has_gradients(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether any of its parameters has a gradient."""
    return any(parameter.grad is not None for parameter in parameters_of(optimizer))


def check_untrained(model: nn.Module) -> None:
    """Check that a model without trained parameters still has none.

    Raises:
        TrialMistake: It has, and its gradients are not exchanged.
    """
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            raise TrialMistake(
                "train_batch",
                f"train_batch: {name} of {type(model).__name__} is trained now, but no parameter "
                "of the model was when it was wrapped, so its gradients are not exchanged; "
                "set requires_grad = True before context.wrap_model, and False after it",
            )
