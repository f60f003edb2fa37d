"""Where the files are that TensorBoard shows."""

from __future__ import annotations

from enum import Enum
from pathlib import Path


class TensorboardMode(Enum):
    """How TensorBoard files come to where they are looked for.

    They are written there, so both modes do the same; MANUAL allows
    `train.upload_tensorboard_files`, which has nothing to do.
    """

    AUTO = "AUTO"
    MANUAL = "MANUAL"


def tensorboard_folder(data_dir: Path, experiment_id: int, trial_id: int) -> Path:
    """Return the folder for the TensorBoard files of a trial."""
    return data_dir / "tensorboard" / str(experiment_id) / str(trial_id)
