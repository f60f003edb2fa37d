"""Checks of wrapped models and optimizers, and of the gradients with which an optimizer steps.

`RawBackward` detects gradients of `loss.backward()`, which are not weighted by each rank's
records, and perhaps not exchanged. Gradients that the trial discards (an adversarial input) are
allowed, so the check is made as an optimizer steps. Only one parameter of the optimizer has a
hook, as a hook on each would cost 1.2 us per parameter and batch; what it misses is detected by
`optimizations.check_ranks`.

`averaging` is for optimizers that call a closure (LBFGS). They choose their steps by its loss, so
the closure has to return the mean over the records of all ranks: else the ranks' steps differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from det_jupyter.core import DistributedContext
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.messages import TrialMistake

CREATE_GRAPH = (
    "train_batch: context.backward(..., create_graph=True) does not work on several ranks: "
    "gradients that have a graph of their own cannot be exchanged. For a penalty on gradients, "
    "compute them by torch.autograd.grad(..., create_graph=True), add the penalty to the loss, "
    "and call context.backward(loss); else set resources.slots_per_trial to 1"
)

_ZERO_GRAD = torch.optim.Optimizer.zero_grad


class RawBackward:
    """Detects gradients of an optimizer that `context.backward` did not compute (raw gradients).

    Args:
        parameters: The optimizer's parameters. The last trained one gets the hook: it is often
            next to the loss, so most losses reach it.

    Attributes:
        is_ours: Whether the backward pass that is running is one of `context.backward`.
        within_ours: Called within each such pass.
    """

    def __init__(self, parameters: list[torch.Tensor]) -> None:
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        self.is_ours = False
        self.within_ours: Callable[[], None] | None = None
        self._was_raw = False  # a raw backward pass has run
        self._hooked = trained[-1] if trained else None
        if self._hooked is not None:
            self._hooked.register_post_accumulate_grad_hook(self._after_gradient)

    def before_ours(self) -> None:
        """Forget raw gradients that were zeroed meanwhile. Called before `context.backward`.

        Raw gradients are those of a call of `loss.backward()`.
        """
        self._was_raw = self.has_raw_gradients()

    def has_raw_gradients(self) -> bool:
        """Return whether raw gradients are part of the present ones."""
        if not self._was_raw or self._hooked is None or self._hooked.grad is None:
            return False
        return bool(self._hooked.grad.norm() != 0)  # waits for the device, after raw ones only

    def _after_gradient(self, _: torch.Tensor) -> None:
        if not self.is_ours:
            self._was_raw = True
        elif self.within_ours is not None:
            self.within_ours()


def averaging(
    closure: Callable[[], Any], weight_of: Callable[[], float], distributed: DistributedContext
) -> Callable[[], Any]:
    """Return a closure whose loss is the mean over the ranks. Each call of it is collective.

    Args:
        closure: Returns a loss: a number, or a tensor with one number; or something else, which
            is passed on.
        weight_of: Returns this rank's share of the loss's total weight, times the number of ranks.
            Called after the closure, which may set the weight by `context.backward`.
    """

    def averaged() -> Any:
        loss = closure()
        if isinstance(loss, torch.Tensor):
            loss = loss.detach()
        elif not isinstance(loss, int | float):
            return loss
        weight = weight_of()
        own = weight * float(loss) if weight else 0.0  # a loss over no records may be NaN
        total = distributed.reduce_(torch.tensor([own], dtype=torch.float64), "sum")
        mean = float(total) / distributed.size
        return torch.full_like(loss, mean) if isinstance(loss, torch.Tensor) else mean

    return averaged


def parameters_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Return the parameters of all groups of an optimizer."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def zero_gradients(optimizer: torch.optim.Optimizer) -> None:
    """Do what `optimizer.zero_grad()` does, faster.

    Torch's own method opens a range of the profiler and switches the compiler off meanwhile: [m]
    25 us, against 1 us here. Where the optimizer overrides the method, it is called.
    """
    if type(optimizer).zero_grad is not _ZERO_GRAD or "zero_grad" in vars(optimizer):
        optimizer.zero_grad()
        return
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


def check_direct_step(optimizer: torch.optim.Optimizer, frequency: int, scaler: Any) -> None:
    """Check that the trial may call `optimizer.step()` directly."""
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
    """Return whether any of the optimizer's parameters has a gradient."""
    return any(parameter.grad is not None for parameter in parameters_of(optimizer))


def check_untrained(model: nn.Module) -> None:
    """Check that a model without trained parameters still has none.

    Raises:
        TrialMistake: A parameter is trained now, and its gradients would not be exchanged.
    """
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            raise TrialMistake(
                "train_batch",
                f"train_batch: {name} of {type(model).__name__} is trained now, but no parameter "
                "of the model was when it was wrapped, so its gradients are not exchanged; "
                "set requires_grad = True before context.wrap_model, and False after it",
            )


def check_not_shared(model: nn.Module, wrapped: list[nn.Module]) -> None:
    """Check that no other wrapped model trains the same parameters.

    Raises:
        ConfigError: Another model does, so the gradients would be exchanged twice.
    """
    others = {id(parameter) for other in wrapped for parameter in other.parameters()}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and id(parameter) in others:
            raise ConfigError(
                f"wrap_model: {name} of this {type(model).__name__} belongs to a model that "
                "is wrapped already, and on several ranks a parameter can be part of one "
                "only; put both into one module, such as torch.nn.ModuleDict, and wrap that"
            )


def check_optimizer(optimizer: Any, models: list[nn.Module], backward_passes: int) -> None:
    """Check the arguments of `wrap_optimizer`.

    Raises:
        TypeError: `optimizer` is no torch.optim.Optimizer.
        ConfigError: The optimizer has parameters of no wrapped model, or `backward_passes` is less
            than 1.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(
            f"wrap_optimizer: got {type(optimizer).__name__}, expected a torch.optim.Optimizer"
        )
    trained = {id(parameter) for model in models for parameter in model.parameters()}
    if not all(id(parameter) in trained for parameter in parameters_of(optimizer)):
        raise ConfigError(
            "wrap_optimizer: it has parameters of no wrapped model, expected those of "
            "what wrap_model returned; wrap the model first, then make the optimizer"
        )
    if backward_passes < 1:
        raise ConfigError(
            f"wrap_optimizer: got backward_passes_per_step {backward_passes}, expected at least 1"
        )
