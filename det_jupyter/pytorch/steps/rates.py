"""Changing the learning rates of a training that runs, with what its schedulers compute.

A scheduler computes the next rate from the present one (StepLR), from the rate that it began with
(LambdaLR), or from rates in the parameter groups (OneCycleLR). All of them are scaled by the same
factor, so the rest of the schedule keeps its form. Limits that are absolute (`eta_min` of
CosineAnnealingLR, `min_lr` of ReduceLROnPlateau) stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from det_jupyter.contract.messages import Change

_IN_GROUPS = ("initial_lr", "max_lr", "min_lr")
_IN_SCHEDULERS = ("base_lrs", "max_lrs")


def find_rate_problem(optimizers: Sequence[torch.optim.Optimizer], change: Change) -> str:
    """Return why the learning rates cannot be changed so; "" if they can."""
    if change.lr is None and change.lr_factor is None:
        return ""
    if not optimizers:
        return "the trial has wrapped no optimizer"
    if change.optimizer is not None and change.optimizer >= len(optimizers):
        last = len(optimizers) - 1
        return f"optimizer: got {change.optimizer}, expected a number from 0 to {last}"
    if change.lr is None:
        return ""
    if change.optimizer is None and len(optimizers) > 1:
        return f"the trial has {len(optimizers)} optimizers; give the optimizer's number, from 0"
    rates = {float(group["lr"]) for group in optimizers[change.optimizer or 0].param_groups}
    if len(rates) > 1:
        known = ", ".join(f"{rate:g}" for rate in sorted(rates))
        return f"the parameter groups have different learning rates ({known}); give lr_factor"
    return "the learning rate is 0 now; nothing is in proportion to that" if 0 in rates else ""


def change_rates(
    optimizers: Sequence[torch.optim.Optimizer], schedulers: Sequence[Any], change: Change
) -> str:
    """Change the learning rates, and return which became which: `lr 0.1 → 0.05`.

    The change is one for which there is no problem; the schedulers are torch's.
    """
    if change.lr is None and change.lr_factor is None:
        return ""
    chosen = optimizers if change.optimizer is None else [optimizers[change.optimizer]]
    before, after = [], []
    for optimizer in chosen:
        present = float(optimizer.param_groups[0]["lr"])
        factor = change.lr_factor if change.lr is None else change.lr / present
        assert factor is not None
        before += [f"{float(group['lr']):g}" for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            _scale_group(group, factor, change.lr)
        for scheduler in _inner(schedulers):
            if getattr(scheduler, "optimizer", None) is optimizer:
                _scale_scheduler(scheduler, factor)
        after += [f"{float(group['lr']):g}" for group in optimizer.param_groups]
    changed = dict.fromkeys(zip(before, after, strict=True))
    return "lr " + ", ".join(f"{old} → {new}" for old, new in changed)


def _inner(schedulers: Sequence[Any]) -> Iterator[Any]:
    """Yield schedulers, and those that they are made of."""
    for scheduler in schedulers:
        yield scheduler
        yield from _inner(getattr(scheduler, "_schedulers", ()))


def _scale_group(group: dict[str, Any], factor: float, lr: float | None) -> None:
    _set(group, "lr", group["lr"] * factor if lr is None else lr)
    for name in _IN_GROUPS:
        if name in group:
            _set(group, name, group[name] * factor)


def _scale_scheduler(scheduler: Any, factor: float) -> None:
    for name in _IN_SCHEDULERS:
        if hasattr(scheduler, name):
            setattr(scheduler, name, [rate * factor for rate in getattr(scheduler, name)])
    rates = [group["lr"] for group in scheduler.optimizer.param_groups]
    scheduler._last_lr = [r.clone() if isinstance(r, torch.Tensor) else r for r in rates]


def _set(group: dict[str, Any], name: str, value: Any) -> None:
    """Set a rate; one that is a tensor stays that tensor, as a compiled step reads it."""
    if isinstance(group[name], torch.Tensor):
        group[name].fill_(value)
    else:
        group[name] = value
