"""PyTorchCallback: hooks into training, for code outside of the trial class; and EarlyStopping.

    on_trial_startup > on_checkpoint_load_start > on_training_start
    per batch        on_training_epoch_start (first of an epoch), on_training_batch_start,
                     `train_batch`, schedulers, on_training_batch_end,
                     on_training_epoch_end (last of an epoch)
    at a boundary    on_training_workload_end
                     on_validation_start > on_validation_epoch_start
                         > on_validation_batch_end per batch > on_validation_epoch_end
                         > on_validation_end
                     on_checkpoint_save_start; then, when it is written (before a validation,
                         or a few batches later), on_checkpoint_write_end
                         > on_checkpoint_upload_end
    leaving early    on_interrupt, and then the checkpoint that saves the run
    after an error   on_exception
    on_trial_shutdown

Callbacks run in the order of the trial's dict, `on_trial_shutdown` in the reverse order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.messages import TrialMistake
from det_jupyter.pytorch.trial.trial_info import ContextInfo


class PyTorchCallback:
    """Hooks to override. Every hook runs on every rank unless it says otherwise.

    If the callback has a state that is needed after a pause, override `state_dict` and
    `load_state_dict` as well: checkpoints store the state under the callback's name.
    """

    def on_trial_startup(self, first_batch_idx: int, checkpoint_uuid: str | None) -> None:
        """Run before anything is loaded; training begins or continues at `first_batch_idx`."""

    def on_trial_shutdown(self) -> None:
        """Run at the very end, also after an error."""

    def on_training_start(self) -> None:
        """Run once state is restored, before the first batch."""

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        """Run before the first batch of an epoch."""

    def on_training_epoch_end(self, epoch_idx: int) -> None:
        """Run after the last batch of an epoch."""

    def on_training_batch_start(self, batch: Any, epoch_idx: int, batch_idx: int) -> None:
        """Run before `train_batch`, with the same batch of this rank, on its device."""

    def on_training_batch_end(
        self, metrics: Mapping[str, Any], epoch_idx: int, batch_idx: int
    ) -> None:
        """Run after a batch and its optimizer step, with this rank's result of `train_batch`.

        Tensors are still on the device: reading one (`.item()`, `float`, `print`) waits for it.
        """

    def on_training_workload_end(
        self, avg_metrics: Mapping[str, Any], batch_metrics: Sequence[Mapping[str, Any]]
    ) -> None:
        """Run when training metrics are reported, with averages and the metrics of each batch."""

    def on_validation_start(self) -> None:
        """Run before a validation."""

    def on_validation_epoch_start(self) -> None:
        """Run before the first batch of a validation."""

    def on_validation_batch_end(self, outputs: Mapping[str, Any], batch_idx: int) -> None:
        """Run after each `evaluate_batch`, with its result on this rank.

        Ranks may have different numbers of batches, so do not call collectives here.
        """

    def on_validation_epoch_end(self, outputs: Sequence[Any]) -> None:
        """Run after the last batch of a validation, with this rank's results of all batches."""

    def on_validation_end(self, metrics: Mapping[str, Any]) -> None:
        """Run after a validation, with its metrics over all ranks."""

    def on_checkpoint_load_start(self, checkpoint: dict[str, Any]) -> None:
        """Run before a checkpoint's state is restored; the dict may be changed."""

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        """Run before a checkpoint is written; the dict may be added to."""

    def on_checkpoint_write_end(self, checkpoint_dir: Path) -> None:
        """Run on the chief when the files are written, before they become a checkpoint."""

    def on_checkpoint_end(self, checkpoint_dir: Path) -> None:
        """Run right after `on_checkpoint_write_end`; this is the older name of that hook."""

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        """Run when the checkpoint is complete in its storage."""

    def on_interrupt(self) -> None:
        """Run before the last checkpoint of a run that is paused, preempted or interrupted."""

    def on_exception(self, exception: BaseException) -> None:
        """Run when an exception ends training on this rank; other ranks may not have one."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state for checkpoints: numbers, strings, tensors, lists, dicts."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""


class EarlyStopping(PyTorchCallback):
    """Ends the training when a validation metric no longer improves.

    Args:
        context: The trial's context.
        metric: Name of a validation metric. NaN is worse than any number.
        patience: Validations in a row without a better value that end the training.
        smaller_is_better: Whether a smaller value is the better one.
        min_delta: The least improvement that counts.
    """

    def __init__(
        self,
        context: ContextInfo,
        metric: str,
        patience: int,
        *,
        smaller_is_better: bool = True,
        min_delta: float = 0.0,
    ) -> None:
        problems = []
        if isinstance(patience, bool) or not isinstance(patience, int) or patience < 1:
            problems.append(f"EarlyStopping: got patience {patience!r}, expected at least 1")
        if not min_delta >= 0:
            problems.append(f"EarlyStopping: got min_delta {min_delta!r}, expected at least 0")
        if problems:
            raise ConfigError(problems)
        self._context = context
        self._metric = metric
        self._patience = patience
        self._sign = 1.0 if smaller_is_better else -1.0
        self._min_delta = min_delta
        self._best = math.inf  # times `_sign`, so that smaller is better
        self._stale = 0  # validations since the best one

    def on_validation_end(self, metrics: Mapping[str, Any]) -> None:
        """Compare the metric with the best one; request the end after `patience` worse ones."""
        if self._metric not in metrics:
            raise TrialMistake(
                "build_callbacks",
                f"build_callbacks: EarlyStopping: got the metric {self._metric!r}; "
                f"the validation has {', '.join(metrics) or 'no metrics'}",
            )
        value = self._sign * float(metrics[self._metric])
        if value < self._best - self._min_delta:
            self._best, self._stale = value, 0
        else:
            self._stale += 1
        if self._stale >= self._patience:
            self._context.set_stop_requested(True)

    def state_dict(self) -> dict[str, Any]:
        """Return the best value, times its sign, and the number of validations since."""
        return {"best": self._best, "stale": self._stale}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._best, self._stale = state_dict["best"], state_dict["stale"]
