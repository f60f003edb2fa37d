"""Whether each rank of a gang can save the whole state of the training (last_step.py)."""

from __future__ import annotations

import os

import torch

from det_jupyter.core import TrialInfo
from det_jupyter.pytorch.parallel import DistributedModel, is_sharded
from det_jupyter.pytorch.training.kept_state import counts_steps
from det_jupyter.pytorch.trial.callback_runner import Callbacks
from det_jupyter.pytorch.trial.context import PyTorchTrialContext

_HOOKS_OF_CHECKPOINTS = (
    "on_checkpoint_save_start",
    "on_checkpoint_write_end",
    "on_checkpoint_end",
)
_HOOKS_OF_BATCHES = (
    "on_training_batch_start",
    "on_training_epoch_start",
    "on_training_batch_end",
    "on_training_epoch_end",
)
_HOOKS_AFTER_COPY = _HOOKS_OF_BATCHES[2:]  # they may change weights


def can_save_for_all(info: TrialInfo, context: PyTorchTrialContext, callbacks: Callbacks) -> bool:
    """Return whether a rank can save for all ranks, and its steps and callbacks are known."""
    models = context.models
    is_whole = all(isinstance(m, DistributedModel) and m.low_rank is None for m in models)
    rank = context.distributed.rank
    is_copied = all(map(is_sharded, models)) and can_copy(info, rank, context.device, callbacks)
    if not models or not (is_whole or is_copied) or context.reducers.are_there:
        return False
    if not all(counts_steps(one.scheduler) for one in context.lr_schedulers):
        return False
    in_windows = context.position.aggregation_frequency > 1
    return context.stepping.sees_steps and not have_to_be_called(callbacks, in_windows)


def can_copy(info: TrialInfo, rank: int, device: torch.device, callbacks: Callbacks) -> bool:
    """Return whether copies of sharded models (shard_copies.py) are all that a rank has."""
    has_own = callbacks.keep_state or any(map(callbacks.overrides, _HOOKS_AFTER_COPY))
    # `Path.exists` raises where the agent's files must not be opened.
    has_memory = device.type == "cpu" and os.path.exists(info.folder.copy(rank, 0))
    return has_memory and not has_own


def have_to_be_called(callbacks: Callbacks, in_windows: bool) -> bool:
    """Return whether callbacks take part in checkpoints, or count batches of a step to repeat."""
    hooks = _HOOKS_OF_BATCHES if in_windows else _HOOKS_OF_BATCHES[:2]
    return any(map(callbacks.overrides, _HOOKS_OF_CHECKPOINTS)) or (
        callbacks.keep_state and any(map(callbacks.overrides, hooks))
    )
