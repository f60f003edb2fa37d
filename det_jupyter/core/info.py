"""What a rank knows of its trial: ids, seed, hyperparameters, and where it goes on from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from det_jupyter.config import ExperimentConfig
from det_jupyter.wire import CheckpointRef, GangPlan


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
    def latest_checkpoint(self) -> CheckpointRef | None:
        """Where this run goes on from; None if it begins."""
        return self.plan.checkpoint
