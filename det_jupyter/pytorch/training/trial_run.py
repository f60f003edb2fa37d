"""The work of a rank whose entrypoint is a trial class: it trains to the target of its run."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from det_jupyter.config import find_missing_batch_size
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.trial.origin import Origin
from det_jupyter.core import Context
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.rules import RunRules, RunStart
from det_jupyter.pytorch.training.batch_events import Reason
from det_jupyter.pytorch.training.building import build_trial
from det_jupyter.pytorch.training.init import context_of_rank
from det_jupyter.pytorch.training.interruptions import Interruption, write_place
from det_jupyter.pytorch.training.loop import Loop, loop_class
from det_jupyter.pytorch.training.meta_batches import train_on_meta
from det_jupyter.pytorch.training.rehearsal import GROUP, Rehearsal
from det_jupyter.pytorch.trial.definition import PyTorchTrial, context_class


class TrialRun:
    """Trains a trial class in a run of an experiment, on one rank of its gang.

    Args:
        trial_class: The user's class.
        core: The rank's context; its `info` has the plan and the configuration.
        on_first_step: Called after the first optimizer step of this run.
    """

    def __init__(
        self,
        trial_class: type[PyTorchTrial],
        core: Context,
        on_first_step: Callable[[], None] = lambda: None,
    ) -> None:
        self._trial_class = trial_class
        self._core = core
        self._on_first_step = on_first_step
        self.context = context_of_rank(core, None, context_class(trial_class))
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
        core, info = self._core, self._core.info
        assert info is not None, "a rank of an experiment"
        plan, config = info.plan, info.config
        if problems := find_missing_batch_size(plan.config | {"hyperparameters": plan.hparams}):
            raise ConfigError(problems)
        if core.distributed.is_chief:
            write_place(os.environ, run=plan.run, agent_id=plan.homes[0])
        start = RunStart(
            seed=plan.seed,
            checkpoint=plan.checkpoint,
            warm_start=plan.warm_start,
            best_metric=plan.best_metric,
        )
        self.context.position.first_batch_idx = start.steps_completed
        rules = RunRules.of(config, core.searcher.target)
        rehearsal = Rehearsal.of(os.environ, core)
        if rehearsal is None:
            return self._train(start, rules, None)
        if rehearsal.plan.memory and "wrap_model" not in self.context.has_to_wrap():
            name = self._trial_class.__name__
            raise ConfigError(
                [f"entrypoint: {name} has engines of DeepSpeed, whose memory is not counted"]
            )
        if rehearsal.plan.fake:
            found = train_on_meta(self._trial_class, self.context, rules, plan.seed)
            core.train.report_metrics(GROUP, 0, found)
            return "stopped"
        with rehearsal.counting(self.context):
            return self._train(start, rules, rehearsal)

    def _train(self, start: RunStart, rules: RunRules, rehearsal: Rehearsal | None) -> Reason:
        core, info = self._core, self._core.info
        assert info is not None, "a rank of an experiment"
        plan = info.plan
        metric = info.config.searcher.metric
        self.trial = build_trial(self._trial_class, self.context, metric, plan.seed)
        self._loop = loop_class(self._trial_class)(
            self.trial,
            self.context,
            core,
            rules,
            start,
            Origin.of_plan(plan, BlobStore.of(info.data_dir)),
            interruption=Interruption.of(os.environ, plan.run),
            rehearsal=rehearsal,
            is_leave_requested=rehearsal.is_over if rehearsal else lambda: False,
            on_first_step=self._on_first_step,
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
