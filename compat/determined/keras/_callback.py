"""`DeterminedCallback`: what Determined's does, with Keras 3 on torch in place of tf.keras."""

from __future__ import annotations

from typing import Any, Literal

from det_jupyter import core
from det_jupyter.integrations.keras import DetCallback

_VALIDATION = "val_"


class DeterminedCallback(DetCallback):
    """Reports metrics and progress, saves checkpoints, and ends the training when it is paused.

    Metrics of a validation have their names without `val_`, as in Determined.

    Args:
        core_context: The Core API's.
        checkpoint: Uuid of the checkpoint to start from; None: begin anew.
        continue_id: Names the training. A checkpoint of another one gives only its weights.
        train_metrics_report_period: Batches between reports of training metrics, or "epoch".
        checkpoint_epochs: Epochs between checkpoints; 0: only when the training ends or is paused.
    """

    def __init__(
        self,
        core_context: core.Context,
        checkpoint: str | None,
        continue_id: int | str,
        *,
        train_metrics_report_period: int | Literal["epoch"] = "epoch",
        checkpoint_epochs: int = 1,
    ) -> None:
        period = train_metrics_report_period
        super().__init__(core_context, report_every=0 if period == "epoch" else period)
        self._latest = checkpoint
        self._belongs_to = continue_id
        self._save_every = checkpoint_epochs

    def _validated(self) -> dict[str, Any]:
        found = super()._validated()
        return {name.removeprefix(_VALIDATION): value for name, value in found.items()}
