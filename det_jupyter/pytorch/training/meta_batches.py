"""Trains batches of a trial on tensors without values, to count memory where no slot is free.

The trial is built under torch's FakeTensorMode, so its tensors have shapes and types only, and
operators compute those of their results. The data is real: one batch is loaded, and its shapes are
used. What needs values fails, but `.item()` in a batch returns 1 (memory_meter.py). If conditions
depend on values, the batches are trained with all of them false, and with all of them true: which
way `if loss.isnan()` and `if loss.isfinite()` lead to the end of the batch is not known.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

from det_jupyter.contract.values.text import error_line
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.data import DataLoader, open_training, to_device
from det_jupyter.pytorch.metrics.evaluation import set_training
from det_jupyter.pytorch.rules import RunRules
from det_jupyter.pytorch.training.building import build_loader, build_trial
from det_jupyter.pytorch.training.memory_meter import MemoryMeter, Truth
from det_jupyter.pytorch.training.schedule import training_units
from det_jupyter.pytorch.trial.context import PyTorchTrialContext
from det_jupyter.pytorch.trial.definition import PyTorchTrial

_STEPS = 2  # the second has the optimizer's states from its beginning


def train_on_meta(
    trial_class: type[PyTorchTrial], context: PyTorchTrialContext, rules: RunRules, seed: int
) -> dict[str, float]:
    """Build the trial, train two windows of batches, and return the memory of its tensors.

    Raises:
        ConfigError: The trial, or an operator of it, needs values.
    """
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    meter = MemoryMeter(context)
    try:
        with fake, _converting_fakes():
            trial = build_trial(trial_class, context, rules.metric, seed)
        batches = _Batches(trial, context, rules, seed)
        with fake, meter.counting():
            batches.train(meter.truth)
    except ConfigError:
        raise
    except Exception as error:  # the user's code may raise anything
        raise ConfigError([error_line(error)]) from error
    return meter.read()


class _Batches:
    """One batch of real data, and its training again and again. Made without a fake mode."""

    def __init__(
        self, trial: PyTorchTrial, context: PyTorchTrialContext, rules: RunRules, seed: int
    ) -> None:
        loader = build_loader(trial, context, "build_training_data_loader")
        if isinstance(loader, DataLoader):
            loader.num_workers = 0
        stream = open_training(
            loader, context.distributed, seed=seed, skip=0, batch_length=trial.get_batch_length
        )
        with closing(stream):
            batch, self._share = next(iter(stream))
        size = context.get_global_batch_size() if context.has_batch_size else None
        context.position.units = training_units(
            rules, global_batch_size=size, batches_per_pass=stream.batches_per_epoch
        )
        self._trial = trial
        self._context = context
        self._batch = to_device(batch, context.device) if context.moves_batches else batch

    def train(self, truth: Truth) -> None:
        """Train, also with the other truth if conditions ask for it; called in a fake mode.

        Raises:
            Exception: The user's error of the first way, if no way leads to the end.
        """
        self._context.stepping.precision.scaler = None  # it reads whether gradients are finite
        set_training(self._context.models)
        errors = []
        for value in (False, True):
            truth.value = value
            try:
                self._train_windows(truth)
            except Exception as error:  # the user's code may raise anything
                errors.append(error.with_traceback(None))  # its frames hold the batch's tensors
            if not truth.is_used:
                break
        if errors and (not truth.is_used or len(errors) > 1):
            raise errors[0]

    def _train_windows(self, truth: Truth) -> None:
        trial, context = self._trial, self._context
        for index in range(_STEPS * context.position.aggregation_frequency):
            truth.num_read = 0
            context.stepping.begin_batch(index, self._share)
            trial.train_batch(self._fake_batch(), 0, index)
            context.stepping.after_step()

    def _fake_batch(self) -> Any:
        return tree_map_only(torch.Tensor, torch.empty_like, self._batch)


@contextmanager
def _converting_fakes() -> Iterator[None]:
    """Let modules change parameters as `.to()` does, of another device by new ones.

    `nn.Module._apply` swaps the content of tensors instead, which it refuses if a weak reference
    to one exists; FakeTensorMode has one to each.
    """
    swapping = nn.Module._apply
    made: dict[nn.Parameter, nn.Parameter] = {}  # a parameter may be that of several modules

    def replacing(module: nn.Module, fn: Any, recurse: bool = True) -> nn.Module:
        for child in module.children() if recurse else ():
            child._apply(fn)
        for name, old in module._parameters.items():
            if old is None:
                continue
            changed = fn(old.detach())
            if changed.device == old.device:
                old.data = changed  # an optimizer may have it already
            else:
                new = nn.Parameter(changed, old.requires_grad)
                module._parameters[name] = made.setdefault(old, new)
        for name, buffer in module._buffers.items():
            module._buffers[name] = None if buffer is None else fn(buffer)
        return module

    nn.Module._apply = replacing  # type: ignore[method-assign]  # in this process, for a moment
    try:
        yield
    finally:
        nn.Module._apply = swapping  # type: ignore[method-assign]
