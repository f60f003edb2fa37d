"""`TorchWriter`: torch's SummaryWriter in the folder of the trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from det_jupyter import core
from det_jupyter.core.train import tensorboard_folder
from det_jupyter.pytorch.trial.tensorboard import TensorBoard


class TorchWriter:
    """Writes into the folder in which the trial's files for TensorBoard are.

    Attributes:
        writer: A `torch.utils.tensorboard.SummaryWriter`.

    Raises:
        ConfigError: The package tensorboard is not installed.
    """

    def __init__(self) -> None:
        context = core.current()
        folder, rank = Path("tensorboard"), 0
        if context is not None:
            rank = context.distributed.rank
            if (info := context.info) is not None:
                ids = info.experiment_id, info.trial_id
                folder = tensorboard_folder(info.data_dir, *ids)
        self.writer: Any = TensorBoard(folder, rank, first_step=_first_step()).writer()

    def add_scalar(self, name: str, value: Any, step: int) -> None:
        """Write one point of a curve."""
        self.writer.add_scalar(name, value, step)

    def reset(self) -> None:
        """Write out what is waiting."""
        self.writer.flush()


def _first_step() -> int:
    """Return how many batches earlier runs of the trial have trained."""
    context = core.current()
    if context is None or context.info is None or context.info.latest_checkpoint is None:
        return 0
    latest = context.info.plan.checkpoint
    return latest.steps_completed if latest is not None else 0
