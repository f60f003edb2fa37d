"""Saves and restores accumulated gradients that no optimizer has used yet.

A trainer that accumulates gradients over several batches (a window) keeps the sum in the
parameters. If a state is saved within a window, the sum must be saved, too: otherwise the run that
continues would step with the gradients of the remaining batches only. Each rank saves its own,
since ranks exchange them at the end of a window.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

_USED = "_det_used"  # an attribute of a gradient: its version when an optimizer has used it


def mark_used(optimizers: Iterable[torch.optim.Optimizer]) -> None:
    """From now on, mark gradients with which these optimizers have stepped.

    Loops that zero gradients only before the next batch leave used gradients in the parameters.
    """
    for optimizer in optimizers:
        optimizer.register_step_post_hook(_mark)


def save_gradients(models: Sequence[torch.nn.Module], folder: Path, rank: int) -> None:
    """Save the gradients of models that no optimizer has used; no file if there are none."""
    found = [[_unused(each) for each in model.parameters()] for model in models]
    if any(each is not None for gradients in found for each in gradients):
        torch.save(found, _file(folder, rank))


def restore_gradients(models: Sequence[torch.nn.Module], folder: Path, rank: int) -> None:
    """Restore the gradients that `save_gradients` has saved, if there are any."""
    if not (file := _file(folder, rank)).exists():
        return
    for model, gradients in zip(models, torch.load(file, map_location="cpu"), strict=True):
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = None if gradient is None else gradient.to(parameter.device)


def _file(folder: Path, rank: int) -> Path:
    return folder / f"gradients-{rank}.pt"


def _mark(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if (gradient := parameter.grad) is not None:
                setattr(gradient, _USED, gradient._version)


def _unused(parameter: torch.nn.Parameter) -> torch.Tensor | None:
    gradient = parameter.grad
    if gradient is None or getattr(gradient, _USED, None) == gradient._version:
        return None
    return gradient
