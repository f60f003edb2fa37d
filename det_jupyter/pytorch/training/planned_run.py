"""One run of a trial by the master's plan, on one rank.

The plan has the class, the hyperparameters, the checkpoint to continue from, and the target.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import torch

from det_jupyter.config import ExperimentConfig, find_missing_batch_size
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import GangPlan
from det_jupyter.contract.trial.origin import Origin
from det_jupyter.core import Context
from det_jupyter.core.train import tensorboard_folder
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.rules import RunRules, RunStart
from det_jupyter.pytorch.training.batch_events import Reason
from det_jupyter.pytorch.training.building import build_trial
from det_jupyter.pytorch.training.interruptions import Interruption, write_place
from det_jupyter.pytorch.training.loop import Loop
from det_jupyter.pytorch.training.rehearsal import Rehearsal
from det_jupyter.pytorch.trial.context import PyTorchTrialContext
from det_jupyter.pytorch.trial.definition import PyTorchTrial


@dataclass(eq=False)
class PlannedRun:
    """Trains the trial of a plan, on one rank of its gang.

    Args:
        trial_class: The user's class.
        plan: The master's plan of this run.
        config: The plan's configuration, parsed.
        core: This rank's journal, collectives, storage and control page.
        device: This rank's.
        data_dir: det_jupyter's data folder, with captured code and TensorBoard's files.
        on_first_step: Called after the first optimizer step of this run.
    """

    trial_class: type[PyTorchTrial]
    plan: GangPlan
    config: ExperimentConfig
    core: Context
    device: torch.device
    _: KW_ONLY
    data_dir: Path | None = None
    on_first_step: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        plan, data_dir = self.plan, self.data_dir
        self.context = PyTorchTrialContext(
            core=self.core,
            device=self.device,
            hparams=plan.hparams,
            config=self.config,
            experiment_id=plan.experiment_id,
            trial_id=plan.trial_id,
            trial_seed=plan.seed,
            tensorboard_folder=data_dir
            and tensorboard_folder(data_dir, plan.experiment_id, plan.trial_id),
        )
        self.trial: PyTorchTrial | None = None
        self._loop: Loop | None = None

    @property
    def steps_completed(self) -> int:
        """Batches trained since the trial's beginning."""
        return self._loop.steps_completed if self._loop else 0

    @property
    def trained(self) -> int:
        """Batches trained in this run."""
        return self.steps_completed - self.context.get_initial_batch()

    def run(self) -> Reason:
        """Build the trial and train it to the search's target. Collective.

        Raises:
            ConfigError: The trial or its configuration is wrong; a retry would fail in the same
            way.
        """
        plan, config = self.plan, self.config
        if problems := find_missing_batch_size(plan.config | {"hyperparameters": plan.hparams}):
            raise ConfigError(problems)
        if self.core.distributed.is_chief:
            write_place(os.environ, run=plan.run, agent_id=plan.homes[0])
        start = RunStart(
            seed=plan.seed,
            checkpoint=plan.checkpoint,
            warm_start=plan.warm_start,
            best_metric=plan.best_metric,
        )
        self.context.position.first_batch_idx = start.steps_completed
        metric = config.searcher.metric
        self.trial = build_trial(self.trial_class, self.context, metric, plan.seed)
        blobs = BlobStore(self.data_dir / "blobs") if self.data_dir else None
        rehearsal = Rehearsal.of(os.environ, self.core)
        self._loop = Loop(
            self.trial,
            self.context,
            self.core,
            RunRules.of(config, self.core.searcher.target),
            start,
            Origin.of_plan(plan, blobs),
            interruption=Interruption.of(os.environ, plan.run),
            rehearsal=rehearsal,
            is_leave_requested=rehearsal.is_over if rehearsal else lambda: False,
            on_first_step=self.on_first_step,
        )
        return self._loop.run()

    def live(self) -> dict[str, Any]:
        """Return the objects of the training, by their names in the rank's kernel.

        Waits for the device if the loss is on one.
        """
        context, loop = self.context, self._loop
        found = {
            "trial": self.trial,
            "context": context,
            "models": context.models,
            "model": context.models[0] if context.models else None,
            "optimizers": context.optimizers,
            "optimizer": context.optimizers[0] if context.optimizers else None,
            "batch": loop.batch if loop else None,
            "batch_idx": context.position.batch_idx,
            "steps_completed": self.steps_completed,
            "metrics": loop.metrics if loop else {},
        }
        loss = loop.metrics.get("loss") if loop else None
        if isinstance(loss, torch.Tensor) and loss.numel() == 1:
            loss = loss.item()
        return found if loss is None else found | {"loss": loss}
