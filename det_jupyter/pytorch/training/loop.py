"""The training loop. Every rank runs it, with the same events after the same batches.

    build     data, schedule
    restore   models, optimizers, ..., generators
    batch     to the device, train_batch, learning rate schedulers, metrics
    event     reports, validations, checkpoints, the end (batch_events.py)

Between two events a batch costs little besides the trial's own code: no collective but DDP's, no
wait for the device, no write.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

import torch

from det_jupyter.contract.messages import CheckpointRef
from det_jupyter.contract.run.journal import FirstStep
from det_jupyter.contract.trial.origin import Origin
from det_jupyter.core import Context
from det_jupyter.core.timings.rank_timings import open_timings
from det_jupyter.pytorch.checkpoints.configured import describe_built
from det_jupyter.pytorch.checkpoints.savepoints import Savepoints
from det_jupyter.pytorch.checkpoints.training_state import Parts
from det_jupyter.pytorch.checkpoints.unsaved import UnsavedWatch
from det_jupyter.pytorch.data import BatchStream, Share, open_training
from det_jupyter.pytorch.metrics.reporting import Reporter
from det_jupyter.pytorch.metrics.series import as_metrics
from det_jupyter.pytorch.metrics.training_metrics import LossWatch
from det_jupyter.pytorch.metrics.validations import Validations
from det_jupyter.pytorch.parallel import explain_sharding_error
from det_jupyter.pytorch.rng import RngStates, seed_rank
from det_jupyter.pytorch.rules import RunRules, RunStart
from det_jupyter.pytorch.steps.batch_weight import Number
from det_jupyter.pytorch.training.batch_events import Events, Reason
from det_jupyter.pytorch.training.building import (
    build_loader,
    check_agreement,
    note_few_records,
    warn_of_single_records,
)
from det_jupyter.pytorch.training.interruptions import Interruption
from det_jupyter.pytorch.training.last_step import LastStep
from det_jupyter.pytorch.training.live_orders import LiveOrders
from det_jupyter.pytorch.training.rehearsal import Rehearsal
from det_jupyter.pytorch.training.schedule import Schedule, training_units
from det_jupyter.pytorch.trial.callback_runner import Callbacks
from det_jupyter.pytorch.trial.context import PyTorchTrialContext
from det_jupyter.pytorch.trial.definition import PyTorchTrial, length_function


@dataclass(eq=False)
class Loop:
    """Trains one trial, on one rank of its gang.

    Args:
        is_leave_requested: Returns whether this rank requests to leave: after an interrupt from
            the keyboard, or at the end of a rehearsal. Called at exchanges.
        on_first_step: Called after the first optimizer step of this run.
    """

    trial: PyTorchTrial  # made with `context`
    context: PyTorchTrialContext
    core: Context  # this rank's journal, collectives, storage and control page
    rules: RunRules
    start: RunStart
    origin: Origin  # saved in checkpoints, so that the trial can be built from them
    _: KW_ONLY
    interruption: Interruption | None = None  # of a run that verifies resuming
    rehearsal: Rehearsal | None = None  # of a run that only measures
    is_leave_requested: Callable[[], bool] = lambda: False
    on_first_step: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        trial, context, core = self.trial, self.context, self.core
        rules, start = self.rules, self.start
        self.position = context.position
        self.steps_completed = start.steps_completed
        self.batch: Any = None
        self._distributed = core.distributed
        self._note_batch = core.note_batch
        self._begin_batch = context.stepping.begin_batch
        self._weight = context.stepping.weight
        context.stepping.note_exchange = core.note_exchange
        context.set_stop_requested(False)  # an earlier fit may have set it
        self._callbacks = Callbacks(trial.build_callbacks(), is_chief=core.distributed.is_chief)
        self._timings = open_timings(rules.profiling, context, start.steps_completed)
        self._validations = Validations(
            trial, context, core, rules, self._callbacks, start.best_metric, self._timings
        )
        self._has_stepped = False
        self._last_step: LastStep | None = None  # of a gang that can save it
        self._is_ending_batch = False  # hooks run that no next run would repeat
        self._reporter = Reporter(
            core,
            average=rules.average_training_metrics,
            first=start.steps_completed,
            reducers=context.reducers,
            watch=LossWatch(
                rules.on_nan_loss,
                core.distributed,
                core.sink,
                is_fp16=context.stepping.precision.dtype is torch.float16,
            ),
            timings=self._timings,
        )
        self._tuner = context.make_tuner()
        overrides = self._callbacks.overrides  # [m] calling a hook without effect costs 400 ns
        self._has_batch_start = overrides("on_training_batch_start")
        self._has_batch_end = overrides("on_training_batch_end")
        self._after_batch: list[Callable[[Share], None]] = []
        self._orders = LiveOrders(context, core, self._after_batch)
        while_waiting = partial(self._timings.timed_block, "checkpoint")
        unsaved = None
        if core.distributed.is_chief and start.checkpoint is None and self.rehearsal is None:
            unsaved = UnsavedWatch(trial, context, self._callbacks, core.sink)
        self._savepoints = Savepoints(
            core.checkpoint, self._parts(), self.origin, start, while_waiting, unsaved
        )
        self._own_length = length_function(trial, "training")
        timed = self._timings.timed
        self._callbacks.time(partial(timed, "callbacks"))
        self._trial_batch = timed("forward", trial.train_batch)
        self._step_schedulers = timed("step_lr_schedulers", self._step_lr_schedulers)
        self._end_batch = self._timings.end_batch
        if self.rehearsal is not None:
            self._after_batch.append(self.rehearsal.after_batch)
        if context.torch_profiler is not None:
            self._after_batch.append(lambda share: context.torch_profiler.step())

    def run(self) -> Reason:
        """Train until the length is reached, the trial stops, or the run has to leave. Collective.

        Raises:
            ConfigError: The trial or its configuration is wrong; a retry would fail in the same
            way.
        """
        start = self.start
        # The loop reports metrics, so they are not read from TensorBoard files too.
        self.core.train.on_report()
        with (
            self.position.training(),
            self._timings.journaling(self.context, self.core.sink, self._distributed.barrier),
            closing(self.context),
            self._callbacks.running(),
            closing(self._savepoints),
            closing(self._orders),
        ):
            uuid = start.checkpoint.uuid if start.checkpoint else None
            self.position.first_batch_idx = start.steps_completed
            self.position.batch_idx = max(0, start.steps_completed - 1)
            self.context.tensorboard.begin_at(start.steps_completed)
            self._callbacks.on_trial_startup(start.steps_completed, uuid)
            with closing(self._open_data()) as batches, closing(self._validations):
                check_agreement(self.context)
                warn_of_single_records(self.context, batches)
                seed_rank(start.seed, self._distributed.rank)
                events = Events(
                    context=self.context,
                    core=self.core,
                    rules=self.rules,
                    start=start,
                    callbacks=self._callbacks,
                    schedule=self._schedule,
                    reporter=self._reporter,
                    validations=self._validations,
                    savepoints=self._savepoints,
                    orders=self._orders,
                    timings=self._timings,
                    interruption=self.interruption,
                    rehearsal=self.rehearsal,
                    is_leave_requested=self.is_leave_requested,
                )
                self._timings.start()
                with events.reporting_last_batches(), self._saving_last_step(events):
                    reason = events.begin() or self._train(batches, events)
            self._savepoints.finish()
        if reason == "preempted":
            self.core.preempt.acknowledge_preemption_signal()
        self._distributed.barrier()  # no rank leaves while the chief is still saving
        return reason

    @property
    def metrics(self) -> dict[str, Any]:
        """This rank's metrics of the last batch."""
        return self._reporter.latest()

    @property
    def latest_checkpoint(self) -> CheckpointRef | None:
        """The last checkpoint of this run, valid once the run has ended; None if there is none."""
        return self._savepoints.latest

    @contextmanager
    def _saving_last_step(self, events: Events) -> Iterator[None]:
        """Save the last step if the block raises because another rank was killed."""
        keep = None
        is_counted = self._tuner is not None and self.position.aggregation_frequency > 1
        if self.rehearsal is None and type(self) is Loop and not is_counted:
            keep = self._last_step = LastStep.open(self.context, self.core, self._callbacks)
        if keep is None:
            yield
            return

        def write(rng_states: list[RngStates]) -> None:
            steps = self.position.cut_at
            divided = keep.shards.states(steps) if keep.shards is not None else None
            self.position.window_weights = None
            self._timings.journal_batches(self.core.sink)
            self._reporter.flush_alone(steps, keep.rows)
            self._savepoints.save_alone(steps, rng_states, divided)

        try:
            self.context.stepping.note_exchange = keep.note_exchange
            if keep.far is not None and keep.shards is None:
                self.context.stepping.before_step = keep.note
            if keep.watch is not None:
                self.context.stepping.await_exchange = keep.await_exchange
            yield
        except (Exception, SystemExit) as error:  # the user's code may also exit
            if keep.notice(error):
                self._save_last_step(keep, events, write)
            raise
        finally:
            self.context.stepping.before_step = self.context.stepping.await_exchange = None
            keep.close()

    def _save_last_step(
        self, keep: LastStep, events: Events, write: Callable[[list[RngStates]], None]
    ) -> None:
        index, cut_at = self.steps_completed, self.position.cut_at
        has_stepped = self.context.stepping.has_stepped(index)
        is_torn = self._is_ending_batch or (has_stepped and keep.shards is None)
        is_in_window = max(events.boundary_at, self._orders.made_at) > cut_at
        is_whole = not (events.is_at_boundary or is_torn or is_in_window)
        self._savepoints.finish_older(cut_at)
        if keep.save(steps_completed=cut_at, batches=index, is_whole=is_whole, write=write):
            self._savepoints.drop_pending()  # an older one must not be recorded after it

    def _open_data(self) -> BatchStream:
        """Open the training data at the position where this run begins; compute the schedule."""
        trial, context, rules = self.trial, self.context, self.rules
        loader = build_loader(trial, context, "build_training_data_loader")
        if self.rehearsal is not None:
            self.rehearsal.prepare(loader)
        self._validations.open(build_loader(trial, context, "build_validation_data_loader"))
        stream = self._open_stream(loader, self.steps_completed)
        size = context.get_global_batch_size() if context.has_batch_size else None
        if size is not None and self.steps_completed == 0:
            note_few_records(self.core, loader, size)
        units = training_units(
            rules,
            global_batch_size=size,
            batches_per_pass=stream.batches_per_epoch,
        )
        self._schedule = Schedule(rules, units, self.core.searcher.target)
        self.position.units = units
        self.position.end = self._schedule.end
        return stream if self.rehearsal is None else self.rehearsal.replayed(stream)

    def _open_stream(self, loader: Any, skip: int) -> BatchStream:
        return open_training(
            loader,
            self._distributed,
            seed=self.start.seed,
            skip=skip,
            batch_length=self.trial.get_batch_length,
        )

    def _train(self, stream: BatchStream, events: Events) -> Reason:
        units = self._schedule.units
        self._epoch = units.epoch_of(self.steps_completed)
        self._epoch_start = units.epoch_end(self._epoch)
        self._epoch_end = units.epoch_end(self._epoch + 1)
        batches = self._timings.timed_batches(stream)
        to_device = self.context.to_device if self.context.moves_batches else lambda batch: batch
        if self._tuner is not None and self._tuner.decision is None:
            self._after_batch.append(self._tune)
        event = events.next_after(self.steps_completed)
        if self._last_step is not None:
            self._last_step.begin(self.steps_completed)
        with self.context.torch_profiler or nullcontext():
            for host_batch, share in batches:
                self._train_batch(host_batch, share, to_device)
                if self.steps_completed == event:
                    keep = self._last_step if event == self.position.cut_at else None
                    if keep is not None and events.is_boundary(event):
                        keep.forget()
                    if reason := events.handle(event, has_stepped=self._has_stepped):
                        return reason
                    if keep is not None:  # the event may have drawn numbers
                        keep.note(event)
                    event = events.next_after(event)
        raise RuntimeError("the training data ended, although it is repeated forever")

    def _train_batch(self, host_batch: Any, share: Share, to_device: Callable[[Any], Any]) -> None:
        # Each call costs 0.3 us here, because the trial's own code leaves cold caches.
        context, callbacks, index = self.context, self._callbacks, self.steps_completed
        self._note_batch(index + 1)
        self._begin_batch(index, share)
        if self._last_step is not None and index == self.position.cut_at:
            self._last_step.keep(index)
        if index == self._epoch_start:
            callbacks.on_training_epoch_start(self._epoch)
        self.batch = batch = to_device(host_batch)
        if self._has_batch_start:
            callbacks.on_training_batch_start(batch, self._epoch, index)
        records: Number = share.records
        if self._own_length is not None:
            records = self._own_length(host_batch, share, index)
        try:
            if share.records:
                returned = self._trial_batch(batch, self._epoch, index)
            else:  # a stand-in, without weight: this rank takes part in the exchange
                with context.reducers.ignored():
                    returned = self._trial_batch(batch, self._epoch, index)
        except Exception as error:  # the user's code may raise anything
            explain_sharding_error(error)
            rank = f"rank {self._distributed.rank} of {self._distributed.size}"
            error.add_note(f"This was in train_batch, batch {index}, on {rank}.")
            raise
        metrics = as_metrics("train_batch", returned, index, self._distributed.rank)
        if self._own_length is None and (given := self._weight.given) is not None:
            records = given
        if self.position.is_step:
            self._after_step()
        self._reporter.add(metrics, index, records)
        if self._last_step is not None:
            self._last_step.note_metrics(index + 1, self._reporter.last_row(), records)
        if self._has_batch_end:
            callbacks.on_training_batch_end(metrics, self._epoch, index)
        self.steps_completed = index + 1
        self._is_ending_batch = True
        if self.steps_completed == self._epoch_end:
            callbacks.on_training_epoch_end(self._epoch)
            self._epoch += 1
            self._epoch_start = self._epoch_end
            self._epoch_end = self._schedule.units.epoch_end(self._epoch + 1)
        if self._end_batch is not None:
            self._end_batch(share.total)
        if self._after_batch:
            for call in self._after_batch.copy():  # some remove themselves
                call(share)
        self._is_ending_batch = False

    def _after_step(self) -> None:
        """Note the step, update the scaler, step the schedulers, report this run's first step."""
        if self._last_step is not None and self._last_step.shards is not None:
            self._last_step.note_step(self.steps_completed + 1)
        self.context.stepping.after_step()
        if self.context.lr_schedulers:
            self._step_schedulers()
        self.position.cut_at = self.steps_completed + 1
        if not self._has_stepped:
            self._has_stepped = True
            if self._distributed.is_chief:
                steps = self.position.batch_idx + 1
                fraction = steps / self._schedule.end
                self.core.sink.write(
                    FirstStep(at=time.time(), steps_completed=steps, fraction=fraction)
                )
            self.on_first_step()

    def _step_lr_schedulers(self) -> None:
        position, epoch_of = self.position, self._schedule.units.epoch_of
        for item in self.context.lr_schedulers:
            for _ in range(item.steps_after(position.window, position.next_step, epoch_of)):
                item.scheduler.step()

    def _parts(self) -> Parts:
        """Return the objects on whose state the next batch depends."""
        shared: dict[str, Any] = {"metrics": self._reporter, "position": self.position}
        if self.core.orders is not None:
            shared["changes"] = self._orders
        if self._tuner is not None:
            shared["bucket_tuner"] = self._tuner
        context = self.context
        if context.built is None:  # a second `fit` finds them trained
            context.built = describe_built(context)
        return Parts(
            context=context, callbacks=self._callbacks, shared=shared, built=context.built
        )

    def _tune(self, share: Share) -> None:
        """Let the tuner try sizes of buckets; report its decision."""
        assert self._tuner is not None
        self._tuner.after_batch(exchanged=self.position.is_step)
        if self._tuner.decision is not None:
            self._after_batch.remove(self._tune)
            if self._distributed.is_chief:
                steps = self.steps_completed
                self.core.train.report_metrics("tensor_fusion", steps, self._tuner.decision)
                sys.stderr.write(f"auto_tune_tensor_fusion: {self._tuner.decision}\n")


def loop_class(trial_class: type[PyTorchTrial]) -> type[Loop]:
    """Return the class of the loop that trains a trial."""
    return trial_class._loop_class or Loop
