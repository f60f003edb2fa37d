"""Whether each rank of a gang has the whole state of the training after a step (last_step.py)."""

from __future__ import annotations

from det_jupyter.pytorch.parallel import DistributedModel
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


def is_whole_on_each_rank(context: PyTorchTrialContext, callbacks: Callbacks) -> bool:
    """Return whether a rank can save for all ranks, and its steps and callbacks are known."""
    is_whole = all(
        isinstance(model, DistributedModel) and model.low_rank is None for model in context.models
    )
    if not (is_whole and context.models) or context.reducers.are_there:
        return False
    in_windows = context.position.aggregation_frequency > 1
    return context.stepping.sees_steps and not have_to_be_called(callbacks, in_windows)


def have_to_be_called(callbacks: Callbacks, in_windows: bool) -> bool:
    """Return whether callbacks take part in checkpoints, or count batches of a step to repeat."""
    hooks = _HOOKS_OF_BATCHES if in_windows else _HOOKS_OF_BATCHES[:2]
    return any(map(callbacks.overrides, _HOOKS_OF_CHECKPOINTS)) or (
        callbacks.keep_state and any(map(callbacks.overrides, hooks))
    )
