"""What a trial can look at its training with: TensorBoard's files, and torch's profiler."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from det_jupyter.pytorch.trial.tensorboard import TensorBoard


class Instruments:
    """The part of a PyTorchTrialContext that is about looking at the training.

    Args:
        folder: Where files for TensorBoard go.
        rank: This rank.

    Attributes:
        profiler: What `set_profiler` made; the loop enters it, and tells it of each batch.
        logs_to_tensorboard: Whether reported metrics go to TensorBoard files too.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self.profiler: Any = None
        self.logs_to_tensorboard = False
        self._folder = folder
        self._rank = rank

    @cached_property
    def tensorboard(self) -> TensorBoard:
        """The files for TensorBoard of this rank."""
        return TensorBoard(
            self._folder, self._rank, is_enabled=self.logs_to_tensorboard, first_step=None
        )

    def get_tensorboard_path(self) -> Path:
        """Return the folder for this rank's TensorBoard files."""
        return self.tensorboard.path

    def get_tensorboard_writer(self) -> Any:
        """Return a `torch.utils.tensorboard.SummaryWriter` that is closed with the trial."""
        return self.tensorboard.writer()

    def set_enable_tensorboard_logging(self, enable_tensorboard_logging: bool) -> None:
        """Write reported metrics to TensorBoard files too (off by default)."""
        if not isinstance(enable_tensorboard_logging, bool):
            raise TypeError(
                f"set_enable_tensorboard_logging: got {enable_tensorboard_logging!r}, "
                "expected True or False"
            )
        self.tensorboard.set_enabled(enable_tensorboard_logging)
        self.logs_to_tensorboard = enable_tensorboard_logging

    def get_enable_tensorboard_logging(self) -> bool:
        """Return whether reported metrics go to TensorBoard files too."""
        return self.logs_to_tensorboard

    def set_profiler(self, *args: Any, **kwargs: Any) -> None:
        """Profile training with a `torch.profiler.profile` of these arguments.

        Traces go to the trial's TensorBoard folder unless `on_trace_ready` says otherwise. The
        profiler is told of each batch; give it a `schedule`, or it records all of them.
        """
        path = str(self.get_tensorboard_path())
        kwargs.setdefault("on_trace_ready", torch.profiler.tensorboard_trace_handler(path))
        self.profiler = torch.profiler.profile(*args, **kwargs)

    def close(self) -> None:
        """Close the files for TensorBoard (called by the loop)."""
        if "tensorboard" in vars(self):
            self.tensorboard.close()
