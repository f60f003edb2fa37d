"""`context.experimental`: switches for trials that replace parts of the library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from det_jupyter.errors import ConfigError

if TYPE_CHECKING:
    from det_jupyter.pytorch.trial.context import PyTorchTrialContext


class PyTorchExperimentalContext:
    """Switches for trials that do things their own way."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self._context = context

    def use_amp(self) -> None:
        """Train in mixed precision (fp16 with a gradient scaler); call it before wrap_model."""
        context = self._context
        if context.models:
            raise ConfigError("use_amp: call it before wrap_model")
        context.use_fp16()

    def disable_dataset_reproducibility_checks(self) -> None:
        """Allow data loaders of any kind: how they shard and resume is up to them."""
        self._context.accepts_any_loader = True

    def disable_auto_to_device(self) -> None:
        """Leave batches where the loader put them; the trial moves them itself."""
        self._context.moves_batches = False
