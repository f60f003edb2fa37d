"""Lightning: a `Trainer` reports to its experiment, is paused and resumed, and follows its search.

    det = DetCallback()
    trainer = L.Trainer(max_epochs=8, callbacks=[det], strategy=DetStrategy())
    trainer.fit(model, data, ckpt_path=det.ckpt_path)

before an epoch, and after the last     the state is saved; then the trial leaves if it is
                                        requested to, or if the search has stopped it here, or if
                                        its length is reached
log_metrics, of a logger that is added  metrics of training; of a validation while Lightning
                                        validates

A run that continues has the same data order and metrics as one that was never paused: Lightning
continues exactly only from the beginning of an epoch, so nothing is saved within an epoch.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import torch

from det_jupyter import core
from det_jupyter.contract.run.scalars import is_metric
from det_jupyter.errors import DetError
from det_jupyter.integrations import require
from det_jupyter.integrations.common import (
    Operations,
    current_context,
    generators_file,
    origin_of,
    reporting_context,
    restore_generators,
    save_generators,
)
from det_jupyter.integrations.gradients import mark_used, restore_gradients, save_gradients
from det_jupyter.integrations.loading import LIGHTNING_FILE

require("lightning")

from lightning.fabric.plugins.environments import ClusterEnvironment
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy

_VALIDATED = "det_jupyter_validated"  # of the dict in it


class DetLogger(Logger):
    """Reports what the LightningModule logs; `DetCallback` adds one to its Trainer.

    Args:
        context: The Core API's.
        trainer: The Trainer that logs to it.
    """

    def __init__(self, context: core.Context, trainer: Trainer) -> None:
        super().__init__()
        self._context = context
        self._trainer = trainer

    @property
    def name(self) -> str:
        """The name that Lightning shows."""
        return "det_jupyter"

    @property
    def version(self) -> str:
        """The trial's number; "" outside of experiments."""
        return str(self._context.info.trial_id) if self._context.info else ""

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the hyperparameters of the trial are those of its experiment."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Report metrics (called by Lightning on every rank)."""
        trainer = self._trainer
        values = {name: value for name, value in metrics.items() if is_metric(name)}
        if not values or not self._context.distributed.is_chief:
            return
        group = "validation" if trainer.validating else "test" if trainer.testing else "training"
        self._context.train.report_metrics(group, trainer.global_step, values)


class DetCallback(Checkpoint):
    """Makes a Trainer's training a trial: metrics, progress, checkpoints, pauses, search.

    All ranks must have it. Lightning then adds no `ModelCheckpoint` of its own.

    Args:
        context: The Core API's; by default the current one.

    Raises:
        DetError: There is no context.
    """

    def __init__(self, context: core.Context | None = None) -> None:
        self._context = reporting_context(context, "DetCallback")
        self._open = ExitStack()
        self._folder: Path | None = None
        self._followed: Operations | None = None
        self._is_read = False  # whether `ckpt_path` was read, even if there is no checkpoint
        self._validated: dict[str, Any] = {}  # by the run before
        self._saved_at: int | None = None  # steps
        self._total: float = 0
        self._is_leaving = False
        self._begins_epoch = False
        self._at_sigterm: Any = None  # the rank's handler, before Lightning sets its own

    @property
    def ckpt_path(self) -> Path | None:
        """The state to continue from, for `Trainer.fit`; None if the trial begins."""
        self._is_read = True
        info = self._context.info
        if self._folder is None and info is not None and info.latest_checkpoint is not None:
            self._folder = self._open.enter_context(
                self._context.checkpoint.restore_path(info.latest_checkpoint)
            )
        return None if self._folder is None else self._folder / LIGHTNING_FILE

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Add the logger (called by Lightning).

        Raises:
            DetError: The Trainer does not fit the trial: its processes, its callbacks, or the unit
                of the search; or `fit` was called without the checkpoint.
        """
        if sum(isinstance(each, DetCallback) for each in trainer.callbacks) > 1:
            raise DetError("DetCallback: the Trainer has it twice; give it once")
        if not any(isinstance(each, DetLogger) for each in trainer.loggers):
            trainer.loggers = [*trainer.loggers, DetLogger(self._context, trainer)]
        size = self._context.distributed.size
        if trainer.world_size != size:
            raise DetError(
                f"DetCallback: the Trainer has {trainer.world_size} processes, and the trial "
                f"{size}; write Trainer(strategy=DetStrategy()), without devices and num_nodes"
            )
        if stage == "fit" and self._context.info is not None and not self._is_read:
            raise self._no_checkpoint()
        searcher = self._context.searcher
        if searcher.is_last:
            return
        if searcher.get_configured_units() is not core.Unit.EPOCHS:
            raise DetError(
                f"DetCallback: searcher.max_length is in {searcher.target.unit}, and Lightning "
                "continues from whole epochs; write max_length: {epochs: N}"
            )

    @property
    def _operations(self) -> Operations:
        assert self._followed is not None
        return self._followed

    def _no_checkpoint(self) -> DetError:
        why = "this trial continues" if self.ckpt_path is not None else "a trial may be paused"
        return DetError(
            f"DetCallback: {why}, and Trainer.fit was called without its checkpoint; write "
            "trainer.fit(..., ckpt_path=callback.ckpt_path), which is None where training begins"
        )

    def _check_length(self, trainer: Trainer) -> None:
        num_epochs = trainer.max_epochs
        if num_epochs is not None and num_epochs >= 0:  # else it has no limit
            self._operations.check_length(num_epochs, "the Trainer", "Trainer(max_epochs=N)")

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore the random generators, before the order of the data is drawn."""
        self._followed = Operations(self._context, "DetCallback", "validation_step")
        self._check_length(trainer)
        self._at_sigterm = signal.getsignal(signal.SIGTERM)
        if self._folder is not None:
            restore_generators(generators_file(self._folder, self._context.distributed.rank))

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Set the rank's handler of SIGTERM again, which requests that all ranks leave.

        Lightning's exchanges a tensor at once, while other ranks may be in another collective, and
        ends the training by an exception.
        """
        if self._context.info is not None:
            with suppress(ValueError):  # not the main thread: Lightning has set none either
                signal.signal(signal.SIGTERM, self._at_sigterm)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Release the checkpoint that was read.

        Raises:
            DetError: It was not read: `fit` begins anew in a run that continues.
        """
        self.on_sanity_check_start(trainer, pl_module)  # which may have been skipped
        if self.ckpt_path is not None and trainer.ckpt_path is None:
            raise self._no_checkpoint()
        if not pl_module.automatic_optimization:  # else each epoch ends with a step
            mark_used(trainer.optimizers)
            if self._folder is not None:
                restore_gradients([pl_module], self._folder, self._context.distributed.rank)
        self._total = trainer.estimated_stepping_batches
        self._saved_at = trainer.global_step if self._folder is not None else None
        self._open.close()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save; then leave if that is requested, or if the search ends here."""
        if trainer.current_epoch > 0:
            self._begins_epoch = True
            self._save(trainer)
            self._begins_epoch = False
        if self._leaves(trainer):
            raise StopIteration  # ends the loop of epochs without another validation

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Check that the search has its metric.

        Raises:
            DetError: The metric is not among those of the validation.
        """
        is_fitted = self._followed is not None and not trainer.sanity_checking
        if is_fitted and self._context.distributed.is_chief:
            self._operations.check_metric(self._last_validated())

    def on_train_batch_end(self, trainer: Trainer, *_: Any, **__: Any) -> None:
        """Report progress, as often as Lightning logs; end at a length in batches."""
        if self._operations.unit is core.Unit.BATCHES and not self._goes_on(trainer):
            trainer.should_stop = True
        if trainer.global_step % max(1, trainer.log_every_n_steps) == 0:
            self._report_progress(trainer)

    def _report_progress(self, trainer: Trainer) -> None:
        total = self._total
        if self._context.distributed.is_chief and 0 < total < float("inf"):
            self._context.train.report_progress(
                min(1.0, trainer.global_step / total), trainer.global_step
            )

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save the state after the last epoch, which a callback may have chosen."""
        self._report_progress(trainer)
        if self._is_leaving:
            return
        self._save(trainer)
        is_early = self._goes_on(trainer) and self._operations.is_compared
        if is_early and self._context.distributed.is_chief:
            self._context.train.report_early_exit(core.EarlyExitReason.USER_REQUESTED_STOP)

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Save an epoch without a batch yet as not begun, which Lightning continues exactly.

        The last validation's metrics are saved too: the search may need them afterwards.
        """
        checkpoint[_VALIDATED] = self._last_validated()
        if self._begins_epoch:
            progress = checkpoint["loops"]["fit_loop"]["epoch_progress"]
            for counts in (progress["total"], progress["current"]):
                counts["ready"] -= 1

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Restore the metrics of the last validation (called by Lightning)."""
        self._validated = checkpoint.get(_VALIDATED, {})

    def _last_validated(self) -> dict[str, Any]:
        _, metrics = self._context.train.get_validated()
        return dict(metrics or self._validated)

    def _save(self, trainer: Trainer) -> None:
        if trainer.global_step == self._saved_at:
            return
        self._saved_at = trainer.global_step
        metadata = {"steps_completed": trainer.global_step}
        rank, shard = self._context.distributed.rank, self._context.distributed.size > 1
        origin = origin_of(self._context, "lightning", trainer.lightning_module)
        opened = self._context.checkpoint.store_path(metadata, shard=shard, origin=origin)
        with opened as (folder, _):
            trainer.save_checkpoint(folder / LIGHTNING_FILE, weights_only=False)
            if not trainer.lightning_module.automatic_optimization:
                save_gradients([trainer.lightning_module], folder, rank)
            save_generators(generators_file(folder, rank))
        if not trainer.enable_validation:
            self._context.train.warn_of_missing_metric()

    def _leaves(self, trainer: Trainer) -> bool:
        """Return whether the trial leaves now. Collective."""
        self._is_leaving = not self._goes_on(trainer) or self._context.preempt.should_preempt()
        return self._is_leaving

    def _goes_on(self, trainer: Trainer) -> bool:
        """Return whether the search lets the trial train on. Collective."""
        is_batches = self._operations.unit is core.Unit.BATCHES
        length = trainer.global_step if is_batches else trainer.current_epoch
        if not self._operations.is_reached(length):
            return True
        goes_on = self._operations.go_on(length, self._last_validated())
        self._check_length(trainer)
        return goes_on


class DetEnvironment(ClusterEnvironment):
    """The ranks of the trial, which det_jupyter has started.

    Args:
        distributed: The ranks.
    """

    def __init__(self, distributed: core.DistributedContext) -> None:
        super().__init__()
        self._distributed = distributed

    @property
    def creates_processes_externally(self) -> bool:
        """True: Lightning must not start processes."""
        return True

    @property
    def main_address(self) -> str:
        """The address of rank 0's computer, for torch's process group."""
        return os.environ.get("MASTER_ADDR", "127.0.0.1")

    @property
    def main_port(self) -> int:
        """The port there."""
        return int(os.environ.get("MASTER_PORT", "0"))

    @staticmethod
    def detect() -> bool:
        """Return whether this process is a rank of a trial."""
        return core.get_cluster_info() is not None

    def world_size(self) -> int:
        """Return the number of ranks."""
        return self._distributed.size

    def global_rank(self) -> int:
        """Return this rank."""
        return self._distributed.rank

    def local_rank(self) -> int:
        """Return this rank among those of its computer."""
        return self._distributed.local_rank

    def node_rank(self) -> int:
        """Return the number of its computer."""
        return self._distributed.cross_rank

    def set_world_size(self, size: int) -> None:
        """Do nothing: the trial decides it."""

    def set_global_rank(self, rank: int) -> None:
        """Do nothing: the trial decides it."""


class _OnRanks:
    """The common part of the strategies on the trial's ranks."""

    _context: core.Context

    @property
    def root_device(self) -> torch.device:
        """The device of this rank."""
        info = self._context.info
        return info.device if info is not None else super().root_device  # type: ignore[misc]


class DetStrategy(_OnRanks, DDPStrategy):
    """DDP over the ranks of the trial: `Trainer` needs no `devices` and `num_nodes`.

    Args:
        context: The Core API's; by default the current one.
        **options: Those of `DDPStrategy`.

    Raises:
        DetError: There is no context.
    """

    def __init__(self, context: core.Context | None = None, **options: Any) -> None:
        self._context = current_context(context, "DetStrategy")
        environment = DetEnvironment(self._context.distributed)
        super().__init__(cluster_environment=environment, **options)

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        """The share of the data that this rank trains on."""
        distributed = self._context.distributed
        return {"num_replicas": distributed.size, "rank": distributed.rank}


class DetModelParallelStrategy(_OnRanks, ModelParallelStrategy):
    """FSDP2 and tensor parallelism over the ranks of the trial, which are on one computer.

    Args:
        context: The Core API's; by default the current one.
        **options: Those of `ModelParallelStrategy`; by default all ranks are data parallel.

    Raises:
        DetError: There is no context, or the ranks are on several computers.
    """

    def __init__(self, context: core.Context | None = None, **options: Any) -> None:
        self._context = current_context(context, "DetModelParallelStrategy")
        distributed = self._context.distributed
        if distributed.cross_size > 1:
            raise DetError(
                f"DetModelParallelStrategy: the trial's ranks are on {distributed.cross_size} "
                "computers, and Lightning writes all parts of a state to one folder; write "
                "resources: {is_single_node: true}, or use DetStrategy"
            )
        sizes = {"data_parallel_size": distributed.size, "tensor_parallel_size": 1}
        super().__init__(**{**sizes, **options})
        self.cluster_environment = DetEnvironment(distributed)
