"""The training loop: every rank runs it, and all ranks do everything at the same batch.

    build     seed, trial, data, callbacks          restore   models, optimizers, ..., generators
    train     per batch:     to the device, train_batch, schedulers, keep the metrics
              at an event:   1. at a boundary: report, save if it is due, validate (schedule.py)
                             2. exchange between the ranks (agreement.py)
                             3. flush metrics, or save and leave

Between events a batch costs nothing but the trial's own code: no collective besides DDP's, no wait
for the device, no write. Leaving always saves, after what a boundary at this batch asks for, so
whoever goes on begins with the next batch.

A validation that fails must not cost the training before it. So what is due anyway is saved first,
with a note that its validation was still to come: whoever goes on from there validates, and then
begins with the next batch. The validation may change generators, callbacks and schedulers; so a
run that leaves at such a batch to be continued saves once more. Else there is one checkpoint for a
batch.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import torch

from det_jupyter.config import ExperimentConfig
from det_jupyter.core import Context
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.agreement import Agreement
from det_jupyter.pytorch.building import build_recipe, build_trial
from det_jupyter.pytorch.callbacks import PyTorchCallback
from det_jupyter.pytorch.context import PyTorchTrialContext
from det_jupyter.pytorch.data import DataLoader
from det_jupyter.pytorch.metrics import as_metrics
from det_jupyter.pytorch.position import Position
from det_jupyter.pytorch.reporting import Reporter
from det_jupyter.pytorch.rng import seed_rank
from det_jupyter.pytorch.schedule import Schedule, training_units
from det_jupyter.pytorch.state import (
    read_state,
    restore_generators,
    restore_models,
    restore_training,
    save_checkpoint,
)
from det_jupyter.pytorch.trial import PyTorchTrial, describe_missing_metric
from det_jupyter.pytorch.validation import set_training, validate
from det_jupyter.records import FirstStep, to_finite
from det_jupyter.wire import GangPlan

Reason = Literal["completed", "preempted", "stopped"]


class Trainer:
    """Trains one trial, on one rank of its gang.

    Args:
        trial_class: The user's class.
        plan: What to train, from which checkpoint on.
        config: The plan's configuration.
        core: This rank's journal, collectives, storage and control page.
        device: Where this rank trains.
        on_first_step: Called after the first optimizer step of this run.
    """

    def __init__(
        self,
        trial_class: type[PyTorchTrial],
        plan: GangPlan,
        config: ExperimentConfig,
        core: Context,
        device: torch.device,
        *,
        on_first_step: Callable[[], None] = lambda: None,
    ) -> None:
        self.plan = plan
        self.config = config
        self.position = Position(self.config.optimizations.aggregation_frequency)
        self.context = PyTorchTrialContext(
            distributed=core.distributed,
            device=device,
            hparams=plan.hparams,
            config=self.config,
            experiment_id=plan.experiment_id,
            trial_id=plan.trial_id,
            trial_seed=plan.seed,
            position=self.position,
        )
        self.trial: PyTorchTrial | None = None
        self.callbacks: dict[str, PyTorchCallback] = {}
        self.steps_completed = 0
        self.trained = 0  # batches in this run
        self.batch: Any = None
        self.metrics: dict[str, Any] = {}
        self._trial_class = trial_class
        self._core = core
        self._distributed = core.distributed
        self._on_first_step = on_first_step
        self._best_metric = plan.best_metric
        self._saved_at = -1
        self._precedes_validation = False  # the last checkpoint, its batch's validation
        self._has_stepped = False
        self._reporter = Reporter(
            core,
            average=self.config.optimizations.average_training_metrics,
            first=plan.checkpoint.steps_completed if plan.checkpoint else 0,
        )

    def run(self) -> Reason:
        """Train until the trial's length is reached, it stops itself, or is asked to leave.

        Raises:
            ConfigError: The trial or its configuration cannot work, however often it is tried.
        """
        self.trial = trial = build_trial(
            self._trial_class, self.context, self.config.searcher.metric, self.plan.seed
        )
        self.callbacks = trial.build_callbacks()
        with ExitStack() as on_exit:
            for callback in self.callbacks.values():
                on_exit.callback(callback.on_trial_shutdown)
            reason = self._run_trial(trial)
        self._distributed.barrier()  # nobody leaves while the chief is still saving
        return reason

    def live(self) -> dict[str, Any]:
        """Return what there is to look at while training, by the names a person would use."""
        context = self.context
        found = {
            "trial": self.trial,
            "context": context,
            "models": context.models,
            "model": context.models[0] if context.models else None,
            "optimizers": context.optimizers,
            "optimizer": context.optimizers[0] if context.optimizers else None,
            "batch": self.batch,
            "batch_idx": self.position.batch_idx,
            "steps_completed": self.steps_completed,
            "metrics": self.metrics,
        }
        return found | (
            {"loss": _to_number(self.metrics["loss"])} if "loss" in self.metrics else {}
        )

    def _run_trial(self, trial: PyTorchTrial) -> Reason:
        checkpoint = self.plan.checkpoint
        first = checkpoint.steps_completed if checkpoint else 0
        self.steps_completed = first
        self._saved_at = first if checkpoint else -1
        self.position.first_batch_idx = first
        for callback in self.callbacks.values():
            callback.on_trial_startup(first, checkpoint.uuid if checkpoint else None)
        recipe = self._build_data(trial)
        loader = recipe.get_data_loader(
            repeat=True,
            skip=first,
            num_replicas=self._distributed.size,
            rank=self._distributed.rank,
            seed=self.plan.seed,
        )
        seed_rank(self.plan.seed, self._distributed.rank)
        self._begin_training()
        batches = iter(loader)
        try:
            return self._train(trial, batches)
        finally:
            del batches, loader  # ends the loader's workers, which os._exit would leave behind

    def _build_data(self, trial: PyTorchTrial) -> DataLoader:
        recipe = build_recipe(trial, "build_training_data_loader")
        self._validation_recipe = build_recipe(trial, "build_validation_data_loader")
        has_batch_size = "global_batch_size" in self.plan.hparams
        units = training_units(
            self.config,
            global_batch_size=self.context.get_global_batch_size() if has_batch_size else None,
            batches_per_pass=recipe.batches_per_pass(),
            size=self._distributed.size,
        )
        self._schedule = Schedule(self.config, units, self._core.searcher.target)
        self.position.units = units
        self.position.end = self._schedule.end
        return recipe

    def _begin_training(self) -> None:
        """Restore the checkpoint, if there is one, and let callbacks know."""
        checkpoint = self.plan.checkpoint
        state = read_state(Path(checkpoint.path)) if checkpoint else None
        if checkpoint and state:
            where = f"checkpoint {checkpoint.uuid}"
            for callback in self.callbacks.values():
                callback.on_checkpoint_load_start(state)
            restore_models(self.context, state, where)
            restore_training(self.context, self.callbacks, state, where)
        elif source := self.plan.warm_start:  # another trial's: its weights, and nothing else
            where = f"searcher: checkpoint {source.uuid}"
            restore_models(self.context, read_state(Path(source.path)), where)
        set_training(self.context.models)
        for callback in self.callbacks.values():
            callback.on_training_start()
        if state:
            restore_generators(self.context, state)  # last: nothing above may draw from them
            is_due = state.get("validation_due", False)
            if is_due and self._schedule.validates_at(self.steps_completed):
                self._validate()
        elif self.config.perform_initial_validation:
            self._validate()

    def _train(self, trial: PyTorchTrial, batches: Iterator[Any]) -> Reason:
        if reason := self._at_target():  # it ended after its checkpoint
            return reason
        units = self._schedule.units
        self._epoch = units.epoch_of(self.steps_completed)
        self._epoch_start = units.epoch_end(self._epoch)
        self._epoch_end = units.epoch_end(self._epoch + 1)
        self._agreement = Agreement(
            self._distributed, self._core.preempt, steps_completed=self.steps_completed
        )
        boundary = self._schedule.next_boundary(self.steps_completed)
        for batch in batches:
            self._train_batch(trial, batch)
            steps = self.steps_completed
            if steps == boundary or steps == self._agreement.due_at:
                reason = self._at_event(is_boundary=steps == boundary)
                if reason:
                    return reason
                boundary = self._schedule.next_boundary(steps)
        raise RuntimeError("the training data ended, although it is repeated for ever")

    def _train_batch(self, trial: PyTorchTrial, host_batch: Any) -> None:
        index = self.steps_completed
        self.context.begin_batch(index)
        if self.callbacks and index == self._epoch_start:
            for callback in self.callbacks.values():
                callback.on_training_epoch_start(self._epoch)
        self.batch = batch = self.context.to_device(host_batch)
        returned = trial.train_batch(batch, self._epoch, index)
        self.metrics = metrics = as_metrics("train_batch", returned)
        if self.position.is_step:
            self._after_step()
        self._reporter.add(metrics, index)
        self.steps_completed = index + 1
        self.trained += 1
        if self.steps_completed == self._epoch_end:
            self._end_epoch()

    def _after_step(self) -> None:
        """Step the schedulers, which only ever step with the optimizer."""
        position = self.position
        for item in self.context.lr_schedulers:
            epoch_of = self._schedule.units.epoch_of
            for _ in range(item.steps_after(position.window, position.next_step, epoch_of)):
                item.scheduler.step()
        if not self._has_stepped:
            self._has_stepped = True
            if self._distributed.is_chief:
                record = FirstStep(at=time.time(), steps_completed=position.batch_idx + 1)
                self._core.sink.write(record)
            self._on_first_step()

    def _end_epoch(self) -> None:
        for callback in self.callbacks.values():
            callback.on_training_epoch_end(self._epoch)
        self._epoch += 1
        self._epoch_start = self._epoch_end
        self._epoch_end = self._schedule.units.epoch_end(self._epoch + 1)

    def _at_event(self, *, is_boundary: bool) -> Reason | None:
        """Do what is due after this batch, and return a reason to leave if there is one."""
        steps = self.steps_completed
        self._agreement.measure(steps)
        if is_boundary:
            self._report()
            is_due = self._schedule.validates_at(steps)
            if self._schedule.saves_at(steps):
                self._save(validation_due=is_due)
            if is_due:
                self._validate()
        verdict = self._agreement.exchange(steps, wants_stop=self.context.get_stop_requested())
        reason: Reason | None = None
        if verdict.stop and is_boundary and steps < self._schedule.end:
            reason = "stopped"
        elif steps == self._schedule.target:
            reason = self._at_target()
        elif verdict.leave:
            reason = "preempted"
        if not is_boundary and reason:
            self._report()
        elif not is_boundary and verdict.flush:
            self._flush()
        if reason:
            self._save(after_validation=reason == "preempted")  # the others are not continued
        return reason

    def _at_target(self) -> Reason | None:
        """Hear what the search wants now, and return a reason to leave if there is one."""
        searcher = self._core.searcher
        while self.steps_completed >= self._schedule.target:  # two lengths may be as many batches
            if not searcher.is_last:
                searcher.report_reached(self.steps_completed)
                if not searcher.await_next():
                    return "preempted"
            elif not searcher.was_extended():
                self._save()  # before the word that it is reached: the trial may be judged by it
                searcher.report_reached(self.steps_completed)
                return "completed"
            self._schedule.aim_at(searcher.target)
        self.position.end = self._schedule.end
        return None

    def _flush(self) -> None:
        self._reporter.flush(self.steps_completed, self._schedule.end)

    def _report(self) -> None:
        callbacks = self.callbacks.values()
        self._reporter.report(self.steps_completed, self._schedule.end, callbacks)

    def _validate(self) -> None:
        assert self.trial is not None
        metrics = validate(
            self.trial, self.context, self._validation_recipe, list(self.callbacks.values())
        )
        if self._distributed.is_chief:
            trained = self._schedule.units.trained(self.steps_completed)
            self._core.train.report_validation_metrics(self.steps_completed, metrics, trained)
        metric = self._searcher_metric(metrics)
        policy = self.config.checkpoint_policy
        if policy == "all" or (policy == "best" and self._is_best(metric)):
            self._save()

    def _searcher_metric(self, metrics: dict[str, Any]) -> float:
        """Return what the trial is judged by; NaN, the worst there is, if it is no number."""
        name = self.config.searcher.metric
        problems = describe_missing_metric(name, set(metrics))
        if problems and self.config.searcher.name == "single":
            raise ConfigError(problems)  # the one trial there is can only be judged by it
        metric = to_finite(metrics.get(name))
        if metric is None and self._distributed.is_chief:
            given = metrics.get(name)
            why = problems or [f"searcher.metric: {name} is {given!r}, expected a finite number"]
            sys.stderr.write(f"{why[0]}; this counts as the worst value\n")
        return math.nan if metric is None else metric

    def _is_best(self, metric: float) -> bool:
        """Return whether the experiment has seen no better one. All ranks know, and agree."""
        best = self._best_metric
        sign = 1 if self.config.searcher.smaller_is_better else -1
        if not math.isfinite(metric) or (best is not None and sign * metric >= sign * best):
            return False
        self._best_metric = metric
        return True

    def _save(self, *, validation_due: bool = False, after_validation: bool = False) -> None:
        """Save a checkpoint, unless this batch has one. Collective.

        Args:
            validation_due: The validation of this batch follows.
            after_validation: What was saved before this batch's validation is not enough.
        """
        steps = self.steps_completed
        is_outdated = after_validation and self._precedes_validation
        if self._saved_at == steps and not is_outdated:
            return
        self._saved_at, self._precedes_validation = steps, validation_due
        save_checkpoint(
            self._core.checkpoint,
            self.context,
            self.callbacks,
            self.plan,
            steps_completed=steps,
            in_window=not self.position.is_step,
            validation_due=validation_due,
        )


def _to_number(value: Any) -> Any:
    """Return a scalar tensor's value, which is what one wants to read. Waits for the device."""
    is_scalar = isinstance(value, torch.Tensor) and value.numel() == 1
    return value.item() if is_scalar else value
