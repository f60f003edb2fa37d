"""The trial of a rank: ids, seed, hyperparameters, latest checkpoint.

Determined has two objects, `get_cluster_info()` and its attribute `trial`. Here both are one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch

from det_jupyter.config import ExperimentConfig
from det_jupyter.wire import GangPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialInfo:
    """The trial that this process is a rank of.

    Args:
        plan: The plan of the gang.
        config: The experiment's effective configuration.
        device: The device of this rank.
        data_dir: det_jupyter's folder on this computer.
    """

    plan: GangPlan
    config: ExperimentConfig
    device: torch.device
    data_dir: Path

    task_type = "TRIAL"  # Determined has tasks of other types

    @property
    def trial(self) -> Self:
        """This object, which has what Determined has here."""
        return self

    @property
    def allocation_id(self) -> str:
        """Name of this period in which the trial holds slots."""
        return self.plan.allocation_id

    @property
    def user_data(self) -> dict[str, Any]:
        """The `data` section of the configuration."""
        return dict(self.config.data)

    @property
    def experiment_id(self) -> int:
        """Number of the experiment."""
        return self.plan.experiment_id

    @property
    def trial_id(self) -> int:
        """Number of the trial."""
        return self.plan.trial_id

    @property
    def trial_seed(self) -> int:
        """Seed of the trial; the same in all its runs."""
        return self.plan.seed

    @property
    def hparams(self) -> dict[str, Any]:
        """The trial's hyperparameters."""
        return self.plan.hparams

    @property
    def latest_checkpoint(self) -> str | None:
        """Uuid of the checkpoint that this run continues from; None at the beginning.

        `context.checkpoint.restore_path(uuid)` gives its folder, `get_metadata(uuid)` its
        `steps_completed`.
        """
        return self.plan.checkpoint.uuid if self.plan.checkpoint else None
