"""Checks of the models and optimizers that a trial wraps."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.steps.gradient_checks import parameters_of


def check_not_shared(model: nn.Module, wrapped: list[nn.Module]) -> None:
    """Check that no other wrapped model trains the same parameters.

    Raises:
        ConfigError: One does, so they would be exchanged twice.
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
        TypeError: This is no optimizer.
        ConfigError: It has parameters of no wrapped model, or the passes are no positive number.
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
