"""accelerate: a tracker that reports, and states that are saved, paused and continued.

    det = DetTracker()
    accelerator = Accelerator(
        log_with=det, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True)
    )
    ...  # accelerator.prepare, accelerator.init_trackers
    step = det.load_state(accelerator)
    while step < 800:
        for batch in det.batches(loader):
            ...
            step += 1
            accelerator.log({"loss": loss.item()}, step=step)
            if det.leaves(step):
                return

A run that continues has the same data order and metrics as one that was never paused: the order of
an epoch is drawn from a seed, and the states of the random generators are restored after the first
batch was fetched, since fetching draws from them too. If `accelerator.accumulate` sums gradients
over several batches, a trial leaves when the optimizer has stepped; a state that is saved before
that contains the gradients so far.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch.utils.data import RandomSampler

from det_jupyter import core
from det_jupyter.errors import DetError
from det_jupyter.integrations import require
from det_jupyter.integrations.common import (
    find_size_problem,
    generators_file,
    load_generators,
    origin_of,
    reporting_context,
    save_generators,
    set_generators,
)
from det_jupyter.integrations.gradients import mark_used, restore_gradients, save_gradients

require("accelerate")

from accelerate import Accelerator, skip_first_batches
from accelerate.data_loader import get_sampler
from accelerate.tracking import GeneralTracker
from accelerate.utils import DistributedType

_VALIDATION = ("val", "eval")  # beginnings of metrics' names
_IN_PARTS = (DistributedType.DEEPSPEED, DistributedType.FSDP, DistributedType.MEGATRON_LM)


class DetTracker(GeneralTracker):
    """Reports what an Accelerator logs, and saves and restores its state.

    Args:
        context: The Core API's; by default the current one.

    Raises:
        DetError: There is no context.
    """

    name = "det_jupyter"
    requires_logging_directory = False

    def __init__(self, context: core.Context | None = None) -> None:
        self._context = reporting_context(context, "DetTracker")
        self._given: Accelerator | None = None
        self._restored_at = 0  # batches before this run
        self._num_epochs: int | None = None  # epochs that `batches` has begun, in all runs
        self._generators: dict[str, Any] | None = None  # to restore when a batch has come
        super().__init__()

    @property
    def tracker(self) -> core.Context:
        """The context that metrics are reported to."""
        return self._context

    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Do nothing: the hyperparameters of the trial are those of its experiment."""

    def log(
        self,
        values: Mapping[str, Any],
        step: int | None = None,
        group: str | None = None,
        **_: Any,
    ) -> None:
        """Report metrics (called by the Accelerator on every rank).

        Args:
            values: The metrics.
            step: Steps completed; by default those of the last report.
            group: "training", "validation" or another; by default the former, and the latter if
                all names begin with val or eval. `accelerator.log` passes it on as
                `log_kwargs={"det_jupyter": {"group": ...}}`.
        """
        if not self._context.distributed.is_chief:
            return
        train = self._context.train
        is_validation = all(name.startswith(_VALIDATION) for name in values)
        group = group or ("validation" if is_validation else "training")
        train.report_metrics(group, train.get_steps() if step is None else step, values)

    def load_state(self, accelerator: Accelerator) -> int:
        """Restore the state of the trial's latest checkpoint, and return its number of batches.

        Collective. Call it after `accelerator.prepare`, also at the beginning of a trial, where
        there is nothing to restore and it returns 0.

        Raises:
            DetError: The Accelerator has other processes than the trial.
        """
        size, num = self._context.distributed.size, accelerator.num_processes
        for_cpu = "Accelerator(cpu=True)"
        if problem := find_size_problem("Accelerator", num, size, accelerator.device, for_cpu):
            raise DetError(f"DetTracker: {problem}")
        self._given = accelerator
        self._context.preempt.hold_while(lambda: not accelerator.sync_gradients)
        mark_used(each.optimizer for each in accelerator._optimizers)
        info = self._context.info
        if info is None or info.latest_checkpoint is None:
            return 0
        checkpoint, rank = self._context.checkpoint, self._context.distributed.rank
        with checkpoint.restore_path(info.latest_checkpoint) as folder:
            accelerator.load_state(folder)
            restore_gradients(accelerator._models, folder, rank)
            self._generators = load_generators(generators_file(folder, rank))
        metadata = checkpoint.get_metadata(info.latest_checkpoint)
        self._restored_at = int(metadata["steps_completed"])
        return self._restored_at

    def batches(self, loader: Any) -> Iterator[Any]:
        """Yield the batches of an epoch; in a run that continues, first the rest of its epoch.

        Args:
            loader: The DataLoader that `accelerator.prepare` has returned.

        Raises:
            DetError: A run that continues could not draw the same order again.
        """
        if type(get_sampler(loader)) is RandomSampler:
            raise DetError(
                "DetTracker.batches: the order of the data would be another one after a pause; "
                "write Accelerator(dataloader_config=DataLoaderConfiguration("
                "use_seedable_sampler=True))"
            )
        skipped = 0
        if self._num_epochs is None:
            self._num_epochs, skipped = divmod(self._restored_at, len(loader))
        loader.set_epoch(self._num_epochs)
        self._num_epochs += 1
        if not skipped:
            self._restore_generators()
        for batch in skip_first_batches(loader, skipped) if skipped else loader:
            self._restore_generators()
            yield batch

    def save_state(self, steps_completed: int) -> str:
        """Save the state as a checkpoint, and return its uuid. Collective.

        Args:
            steps_completed: Batches since the beginning of the trial.

        Raises:
            DetError: Accumulated gradients cannot be saved, because they are sharded.
        """
        accelerator, distributed = self._accelerator, self._context.distributed
        if not accelerator.sync_gradients and accelerator.distributed_type in _IN_PARTS:
            raise DetError(
                f"DetTracker.save_state: with {accelerator.distributed_type.value} the gradients "
                "that accelerator.accumulate sums up cannot be saved; save where "
                "accelerator.sync_gradients is true"
            )
        metadata = {"steps_completed": steps_completed}
        opened = self._context.checkpoint.store_path(
            metadata, shard=distributed.size > 1, origin=origin_of(self._context, "accelerate")
        )
        with opened as (folder, uuid):
            accelerator.save_state(folder)
            if accelerator.distributed_type not in _IN_PARTS:
                save_gradients(accelerator._models, folder, distributed.rank)
            save_generators(generators_file(folder, distributed.rank))
        return uuid

    def leaves(self, steps_completed: int) -> bool:
        """Return whether the trial must leave now; if so, its state was saved. Collective.

        Within `accelerator.accumulate` it leaves when the optimizer has stepped.
        """
        if not self._context.preempt.should_preempt():
            return False
        self.save_state(steps_completed)
        return True

    @property
    def _accelerator(self) -> Accelerator:
        if self._given is None:
            raise DetError(
                "DetTracker: its Accelerator is not given yet; call load_state(accelerator) after "
                "accelerator.prepare, which returns the number of batches before"
            )
        return self._given

    def _restore_generators(self) -> None:
        if self._generators is not None:
            set_generators(self._generators)
            self._generators = None
