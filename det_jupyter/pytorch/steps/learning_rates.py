"""Learning rates: when schedulers step, linear scaling with the batch size, and changes by users.

A scheduler never steps after a batch at which the optimizer did not:

    aggregation_frequency 4, frequency 1       batch  0 1 2 3 | 4 5 6 7 | 8 9 ...
    optimizer steps                                         x         x
    STEP_EVERY_BATCH                                        4         4     times, one per batch
    STEP_EVERY_OPTIMIZER_STEP                               1         1
    STEP_EVERY_EPOCH, epochs of 6 batches                             1     ahead of the first step
    MANUAL_STEP                                                             of epoch 1, at batch 11

`frequency` counts batches, epochs, and (Determined's rule) for optimizer steps batches too.

Linear scaling (`optimizations.large_batch`) is preceded by a gradual warm-up:

    k = records per optimizer step / base_batch_size

    base_batch_size 64, 256 records per step (k = 4), a warm-up of 6 batches

    batch     0     1     2     3     4     5     6     7 ...
    factor    1   1.5     2   2.5     3   3.5     4     4

The trial sets the learning rates that are right for `base_batch_size`. Each optimizer step uses
them times the factor, and they are restored after it: schedulers and checkpoints see the trial's
rates only. The factor depends on nothing but the batch, so a resumed run takes the same steps.
Source: Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour" (2017), sections
2.1 and 2.2. Their momentum correction is not needed: torch's SGD keeps momentum without the
learning rate. A k below 1 scales down in the same way.

A user may change the rates of a running trial (training/live_orders.py). A scheduler computes the
next rate from the present one (StepLR), from the first one (LambdaLR), or from rates in the
parameter groups (OneCycleLR). All of them are multiplied by the same factor, so the rest of the
schedule keeps its shape. Absolute limits (`eta_min` of CosineAnnealingLR, `min_lr` of
ReduceLROnPlateau) stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any

import torch

from det_jupyter.config.sections import LargeBatch
from det_jupyter.contract.messages import Change
from det_jupyter.contract.values.lengths import TrainingUnits
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.steps.position import Position


class LRScheduler:
    """A learning rate scheduler together with when to step it."""

    class StepMode(Enum):
        """When a scheduler steps."""

        STEP_EVERY_EPOCH = 1
        STEP_EVERY_BATCH = 2
        MANUAL_STEP = 3
        STEP_EVERY_OPTIMIZER_STEP = 4

    def __init__(self, scheduler: Any, step_mode: StepMode, frequency: int = 1) -> None:
        if not isinstance(step_mode, LRScheduler.StepMode):
            raise TypeError(
                f"wrap_lr_scheduler: got step_mode {step_mode!r}, expected LRScheduler.StepMode."
                f"{', '.join(mode.name for mode in LRScheduler.StepMode)}"
            )
        if isinstance(frequency, bool) or not isinstance(frequency, int) or frequency < 1:
            raise ConfigError(
                f"wrap_lr_scheduler: got frequency {frequency!r}, expected at least 1"
            )
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau
        if isinstance(scheduler, plateau) and step_mode is not LRScheduler.StepMode.MANUAL_STEP:
            raise ConfigError(
                "wrap_lr_scheduler: ReduceLROnPlateau needs a metric to step; wrap it with "
                "LRScheduler.StepMode.MANUAL_STEP and call its step(metric) yourself"
            )
        self.scheduler = scheduler
        self.step_mode = step_mode
        self.frequency = frequency

    def steps_after(self, window: range, next_step: int, epoch_of: Callable[[int], int]) -> int:
        """Return how many times to step the scheduler after an optimizer step.

        Args:
            window: Batches since the previous optimizer step; this step was at the last of them.
            next_step: Batch of the next optimizer step.
            epoch_of: Returns the epoch of a batch.
        """
        batch_idx = window[-1]
        match self.step_mode:
            case LRScheduler.StepMode.STEP_EVERY_BATCH:
                due = window
            case LRScheduler.StepMode.STEP_EVERY_OPTIMIZER_STEP:
                due = range(batch_idx, batch_idx + 1)
            case LRScheduler.StepMode.STEP_EVERY_EPOCH:
                due = range(epoch_of(batch_idx), epoch_of(next_step))
            case LRScheduler.StepMode.MANUAL_STEP:
                return 0
        return sum((index + 1) % self.frequency == 0 for index in due)


class LargeBatchRates:
    """Scales the learning rates of a trial's optimizers, by `optimizations.large_batch`."""

    def __init__(self, rules: LargeBatch, global_batch_size: int) -> None:
        self._warmup = rules.warmup
        self._scale = global_batch_size / rules.base_batch_size

    def factor(self, batch_idx: int, units: TrainingUnits, *, batches_per_step: int = 1) -> float:
        """Return the factor of learning rates at batch `batch_idx`.

        `batches_per_step`: batches over which the gradients of a step are averaged.
        """
        scale = self._scale * batches_per_step
        warmup = units.to_batches(self._warmup)
        if batch_idx >= warmup:
            return scale
        return 1.0 + (scale - 1.0) * batch_idx / warmup

    def attach(
        self, optimizer: torch.optim.Optimizer, position: Position, *, averages: bool = True
    ) -> None:
        """Scale the learning rates of all parameter groups during each `optimizer.step()`.

        Before and after the training nothing is scaled. If the gradients of a window are summed
        instead of averaged (`averages` is False), the window's number of batches adds no further
        factor.
        """
        own: list[tuple[dict[str, Any], Any]] = []
        batches_per_step = position.aggregation_frequency if averages else 1

        def scale(*_: object) -> None:
            if position.units is None or position.has_ended:
                return
            factor = self.factor(
                position.batch_idx, position.units, batches_per_step=batches_per_step
            )
            for group in optimizer.param_groups:
                if (lr := group.get("lr")) is not None:  # None: the optimizer has no fixed rate
                    own.append((group, lr))
                    group["lr"] = lr * factor

        def restore(*_: object) -> None:
            for group, lr in own:
                group["lr"] = lr
            own.clear()

        optimizer.register_step_pre_hook(scale)
        optimizer.register_step_post_hook(restore)


_IN_GROUPS = ("initial_lr", "max_lr", "min_lr")
_IN_SCHEDULERS = ("base_lrs", "max_lrs")


def find_rate_problem(optimizers: Sequence[torch.optim.Optimizer], change: Change) -> str:
    """Return why this change of learning rates is impossible; "" if it is possible."""
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
    """Change the learning rates, and return them before and after: `lr 0.1 → 0.05`.

    Args:
        optimizers: All that the trial has wrapped.
        schedulers: Torch's own, unwrapped.
        change: One that `find_rate_problem` accepts.
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
            set_rate(group, "lr", group["lr"] * factor if change.lr is None else change.lr)
            for name in _IN_GROUPS:
                if name in group:
                    set_rate(group, name, group[name] * factor)
        for scheduler in _inner(schedulers):
            if getattr(scheduler, "optimizer", None) is optimizer:
                _scale_scheduler(scheduler, factor)
        after += [f"{float(group['lr']):g}" for group in optimizer.param_groups]
    changed = dict.fromkeys(zip(before, after, strict=True))
    return "lr " + ", ".join(f"{old} → {new}" for old, new in changed)


def _inner(schedulers: Sequence[Any]) -> Iterator[Any]:
    """Yield the schedulers, and those inside ChainedScheduler and SequentialLR."""
    for scheduler in schedulers:
        yield scheduler
        yield from _inner(getattr(scheduler, "_schedulers", ()))


def _scale_scheduler(scheduler: Any, factor: float) -> None:
    for name in _IN_SCHEDULERS:
        if hasattr(scheduler, name):
            setattr(scheduler, name, [rate * factor for rate in getattr(scheduler, name)])
    rates = [group["lr"] for group in scheduler.optimizer.param_groups]
    scheduler._last_lr = [r.clone() if isinstance(r, torch.Tensor) else r for r in rates]


def set_rate(group: dict[str, Any], name: str, value: Any) -> None:
    """Set a rate. A tensor is filled in place, because a compiled step reads this tensor."""
    if isinstance(group[name], torch.Tensor):
        group[name].fill_(value)
    else:
        group[name] = value
