"""What a rank knows of its trial: ids, seed, hyperparameters, and where it goes on from.

Scripts written for Determined ask `get_cluster_info()` for it, in two parts: the cluster's info
and, as its `trial`, the trial's. Here both are one.
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
        plan: What the ranks were started with.
        config: The experiment's effective configuration.
        device: Where this rank computes.
        data_dir: det_jupyter's folder on this computer.
    """

    plan: GangPlan
    config: ExperimentConfig
    device: torch.device
    data_dir: Path

    task_type = "TRIAL"  # the only task that has an info here

    @property
    def trial(self) -> Self:
        """What Determined has here: ids, seed and hyperparameters of the trial."""
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
        """The checkpoint that this run goes on from, by its uuid; None if it begins.

        `context.checkpoint.restore_path(uuid)` gives its folder, `get_metadata(uuid)` its
        `steps_completed`.
        """
        return self.plan.checkpoint.uuid if self.plan.checkpoint else None
