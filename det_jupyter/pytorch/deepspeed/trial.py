"""The trial class that a user writes around engines of DeepSpeed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from det_jupyter.errors import CheckpointError
from det_jupyter.pytorch.deepspeed.context import DeepSpeedTrialContext
from det_jupyter.pytorch.deepspeed.loop import DeepSpeedLoop
from det_jupyter.pytorch.trial.definition import PyTorchTrial


class DeepSpeedTrial(PyTorchTrial):
    """One training run of engines: build them, train a micro batch, evaluate a batch.

    A batch is a step of the optimizer: as many micro batches on each rank as the engine's
    `gradient_accumulation_steps`. `train_batch` and `evaluate_batch` take theirs from an iterator.
    """

    _context_class = DeepSpeedTrialContext
    _loop_class = DeepSpeedLoop

    def __init__(self, context: DeepSpeedTrialContext) -> None:
        """Build the engines and wrap them by `context.wrap_model_engine`.

        Define it; calling `super().__init__(context)` is allowed, and has no effect.
        """

    def train_batch(
        self, dataloader_iter: Iterator[Any], epoch_idx: int, batch_idx: int
    ) -> torch.Tensor | dict[str, Any]:
        """Train on the next micro batch of this rank, and return its metrics, or only its loss."""
        raise NotImplementedError

    def evaluate_batch(self, dataloader_iter: Iterator[Any], batch_idx: int) -> dict[str, Any]:
        """Return the metrics of the next batch of this rank."""
        raise NotImplementedError

    def save(self, context: DeepSpeedTrialContext, path: Path) -> None:
        """Save the engines into a folder of this rank. Collective; may be overridden."""
        engine: Any
        for index, engine in enumerate(context.models):
            engine.save_checkpoint(str(path), tag=f"model{index}")

    def load(self, context: DeepSpeedTrialContext, load_path: Path) -> None:
        """Load what `save` has saved. Collective; may be overridden.

        Raises:
            CheckpointError: There is no engine's state in it.
        """
        engine: Any
        for index, engine in enumerate(context.models):
            found, _ = engine.load_checkpoint(str(load_path), tag=f"model{index}")
            if found is None:
                raise CheckpointError(f"{load_path} has no state of engine {index}")
