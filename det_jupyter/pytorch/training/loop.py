"""The training loop: every rank runs it, and all ranks do everything at the same batch.

    build     data, schedule                        restore   models, optimizers, ..., generators
    train     per batch:     to the device, train_batch, schedulers, keep the metrics
              at an event:   1. at a boundary: report, save if it is due, validate (schedule.py)
                             2. exchange between the ranks (agreement.py)
                             3. flush metrics, finish a checkpoint, or save and leave

Between events a batch costs nothing but the trial's own code: no collective besides DDP's, no wait
for the device, no write. Leaving always saves, after what a boundary at this batch asks for, so
whoever goes on begins with the next batch.

A checkpoint is begun by a snapshot of the state; while it is written the training goes on, and it
is finished at the first exchange after that, or before a validation (checkpoints/saving.py).

A validation that fails must not cost the training before it. So what is due anyway is saved first,
and a run that leaves at such a batch to be continued saves once more after it
(checkpoints/savepoints.py).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext
from typing import Any, Literal

from det_jupyter.core import Context
from det_jupyter.pytorch.checkpoints.origin import Origin
from det_jupyter.pytorch.checkpoints.savepoints import Savepoints
from det_jupyter.pytorch.checkpoints.state import Parts
from det_jupyter.pytorch.data import BatchStream, Share, open_training
from det_jupyter.pytorch.metrics.evaluation import set_training
from det_jupyter.pytorch.metrics.loss_watch import LossWatch
from det_jupyter.pytorch.metrics.reporting import Reporter
from det_jupyter.pytorch.metrics.series import as_metrics
from det_jupyter.pytorch.metrics.timings import Timings
from det_jupyter.pytorch.metrics.validations import Validations
from det_jupyter.pytorch.parallel import explain_parts
from det_jupyter.pytorch.ranks.agreement import Agreement
from det_jupyter.pytorch.rng import seed_rank
from det_jupyter.pytorch.run.rules import Rules, Start
from det_jupyter.pytorch.run.schedule import Schedule, training_units
from det_jupyter.pytorch.training.building import (
    build_loader,
    check_agreement,
    warn_of_lonely_records,
)
from det_jupyter.pytorch.training.interruptions import Interruption
from det_jupyter.pytorch.training.rank_watch import RankWatch
from det_jupyter.pytorch.trial.callbacks import Callbacks
from det_jupyter.pytorch.trial.context import PyTorchTrialContext
from det_jupyter.pytorch.trial.definition import PyTorchTrial, own_lengths
from det_jupyter.records import FirstStep
from det_jupyter.wire import CheckpointRef

Reason = Literal["completed", "preempted", "stopped"]


class Loop:
    """Trains one trial, on one rank of its gang.

    Args:
        trial: Made with `context`, which has wrapped what is trained.
        context: Shared with the trial.
        core: This rank's journal, collectives, storage and control page.
        rules: What happens besides training.
        start: Where training begins.
        origin: Goes into checkpoints, so that the trial can be built again.
        interruption: Where the run is broken off to see whether it resumes.
        wants_to_leave: Asked at exchanges, on every rank: whether someone at the keyboard does.
        on_first_step: Called after the first optimizer step of this run.
    """

    def __init__(
        self,
        trial: PyTorchTrial,
        context: PyTorchTrialContext,
        core: Context,
        rules: Rules,
        start: Start,
        origin: Origin,
        *,
        interruption: Interruption | None = None,
        wants_to_leave: Callable[[], bool] = lambda: False,
        on_first_step: Callable[[], None] = lambda: None,
    ) -> None:
        self.trial = trial
        self.context = context
        self.position = context.position
        self.steps_completed = start.steps_completed
        self.batch: Any = None
        self._core = core
        self._distributed = core.distributed
        self._note_batch = core.note_batch
        self._rules = rules
        self._start = start
        self._interruption = interruption
        self._wants_to_leave = wants_to_leave
        self._on_first_step = on_first_step
        context.set_stop_requested(False)  # an earlier fit may have left it
        self._callbacks = Callbacks(trial.build_callbacks(), is_chief=self._distributed.is_chief)
        self._validations = Validations(
            trial, context, core, rules, self._callbacks, start.best_metric
        )
        self._has_stepped = False
        self._timings = Timings.open(
            rules.profiling, context.device, is_chief=self._distributed.is_chief
        )
        self._reporter = Reporter(
            core,
            average=rules.average_training_metrics,
            first=start.steps_completed,
            reducers=context.reducers,
            watch=LossWatch(rules.on_nan_loss, core.distributed, core.sink),
            timings=self._timings,
        )
        self._rank_watch = RankWatch(rules.check_ranks, core, context.models)
        self._tuner = context.make_tuner()
        self._savepoints = Savepoints(core.checkpoint, self._parts(), origin, start)
        self._own_length = own_lengths(trial, "training")
        self._trial_batch = trial.train_batch
        self._step_schedulers = self._step_lr_schedulers
        self._after_batch: list[Callable[[Share], None]] = []  # what wants to know of each batch
        if self._timings is not None:
            self._time(self._timings)
        if context.profiler is not None:
            self._after_batch.append(lambda share: context.profiler.step())

    def run(self) -> Reason:
        """Train until the trial's length is reached, it stops itself, or is asked to leave.

        Raises:
            ConfigError: The trial or its configuration cannot work, however often it is tried.
        """
        start = self._start
        with closing(self.context), self._callbacks.watching(), closing(self._savepoints):
            uuid = start.checkpoint.uuid if start.checkpoint else None
            self.position.first_batch_idx = start.steps_completed
            self.position.batch_idx = max(0, start.steps_completed - 1)
            self.context.tensorboard.begin_at(start.steps_completed)
            self._callbacks.on_trial_startup(start.steps_completed, uuid)
            with closing(self._open_data()) as batches, closing(self._validations):
                check_agreement(self.context)
                warn_of_lonely_records(self.context, batches)
                seed_rank(start.seed, self._distributed.rank)
                # It may have come to its end, or stopped itself, after its checkpoint.
                with self._telling_last_batches():
                    reason = self._begin_training() or self._at_target() or self._train(batches)
            self._savepoints.finish()
        if reason == "preempted":
            self._core.preempt.acknowledge_preemption_signal()
        self._distributed.barrier()  # nobody leaves while the chief is still saving
        return reason

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics of the last batch, this rank's."""
        return self._reporter.latest()

    @property
    def latest_checkpoint(self) -> CheckpointRef | None:
        """The last checkpoint of this run, after it; None if it saved none."""
        return self._savepoints.latest

    def _open_data(self) -> BatchStream:
        """Open the training data where this run begins, and lay out the schedule."""
        trial, context, rules = self.trial, self.context, self._rules
        loader = build_loader(trial, context, "build_training_data_loader")
        self._validations.open(build_loader(trial, context, "build_validation_data_loader"))
        stream = open_training(
            loader,
            self._distributed,
            seed=self._start.seed,
            skip=self.steps_completed,
            batch_length=trial.get_batch_length,
        )
        units = training_units(
            rules,
            global_batch_size=context.get_global_batch_size() if context.has_batch_size else None,
            batches_per_pass=stream.batches_per_epoch,
        )
        self._schedule = Schedule(rules, units, self._core.searcher.target)
        self.position.units = units
        self.position.end = self._schedule.end
        return stream

    def _begin_training(self) -> Reason | None:
        """Restore the checkpoint, if there is one, and make up for a validation it precedes."""
        self._savepoints.restore()
        set_training(self.context.models)
        self._callbacks.on_training_start()
        due = self._savepoints.restore_generators()
        is_scheduled = self._schedule.validates_at(self.steps_completed)
        if due == "rung" or (due == "scheduled" and is_scheduled):
            self._validate()
            wishes = self._distributed.allgather(self.context.get_stop_requested())
            if any(wishes) and self.steps_completed < self._schedule.end:
                return self._leave("stopped")
        elif self._start.checkpoint is None and self._rules.initial_validation:
            self._validate()
        return None

    def _train(self, stream: BatchStream) -> Reason:
        units = self._schedule.units
        self._epoch = units.epoch_of(self.steps_completed)
        self._epoch_start = units.epoch_end(self._epoch)
        self._epoch_end = units.epoch_end(self._epoch + 1)
        self._agreement = Agreement(
            self._distributed, self._core.preempt, steps_completed=self.steps_completed
        )
        batches: Iterable[tuple[Any, Share]] = stream
        if self._timings is not None:
            batches = self._timings.over(stream, self.steps_completed)
        to_device = self.context.to_device if self.context.moves_batches else _as_it_is
        if self._tuner is not None and self._tuner.decision is None:
            self._after_batch.append(self._tune)
        event = self._next_event()
        with self.context.profiler or nullcontext():
            for host_batch, share in batches:
                self._train_batch(host_batch, share, to_device)
                if self.steps_completed == event:
                    if reason := self._at_event():
                        return reason
                    event = self._next_event()
        raise RuntimeError("the training data ended, although it is repeated for ever")

    def _train_batch(self, host_batch: Any, share: Share, to_device: Callable[[Any], Any]) -> None:
        # An extra call costs 0.3 us here: what the trial does in between empties the caches.
        context, callbacks, index = self.context, self._callbacks, self.steps_completed
        self._note_batch(index + 1)
        context.begin_batch(index, share)
        if index == self._epoch_start:
            callbacks.on_training_epoch_start(self._epoch)
        self.batch = batch = to_device(host_batch)
        callbacks.on_training_batch_start(batch, self._epoch, index)
        records = share.records
        if self._own_length is not None:
            records = self._own_length(host_batch, share, index)
        try:
            if share.records:
                returned = self._trial_batch(batch, self._epoch, index)
            else:  # a stand-in, so that this rank takes part in the exchange: counts for nothing
                with context.reducers.ignored():
                    returned = self._trial_batch(batch, self._epoch, index)
        except Exception as error:
            explain_parts(error)
            error.add_note(f"This was in train_batch, batch {index}, on {self._rank_name()}.")
            raise
        metrics = as_metrics("train_batch", returned, index, self._distributed.rank)
        if self.position.is_step:
            self._after_step()
        self._reporter.add(metrics, index, records)
        callbacks.on_training_batch_end(metrics, self._epoch, index)
        self.steps_completed = index + 1
        if self.steps_completed == self._epoch_end:
            self._end_epoch()
        for after_batch in self._after_batch:
            after_batch(share)

    def _rank_name(self) -> str:
        distributed = self._distributed
        return f"rank {distributed.rank} of {distributed.size}"

    def _after_step(self) -> None:
        """Update the scaler and step the schedulers, which only ever step with the optimizer."""
        if self.context.scaler is not None:
            self.context.after_step()
        if self.context.lr_schedulers:
            self._step_schedulers()
        self.position.cut_at = self.steps_completed + 1
        if not self._has_stepped:
            self._has_stepped = True
            if self._distributed.is_chief:
                steps = self.position.batch_idx + 1
                fraction = steps / self._schedule.end
                self._core.sink.write(
                    FirstStep(at=time.time(), steps_completed=steps, fraction=fraction)
                )
            self._on_first_step()

    def _step_lr_schedulers(self) -> None:
        position, epoch_of = self.position, self._schedule.units.epoch_of
        for item in self.context.lr_schedulers:
            for _ in range(item.steps_after(position.window, position.next_step, epoch_of)):
                item.scheduler.step()

    def _end_epoch(self) -> None:
        self._callbacks.on_training_epoch_end(self._epoch)
        self._epoch += 1
        self._epoch_start = self._epoch_end
        self._epoch_end = self._schedule.units.epoch_end(self._epoch + 1)

    def _parts(self) -> Parts:
        """Return all that has a state which the next batch depends on."""
        shared: dict[str, Any] = {"metrics": self._reporter, "position": self.position}
        if self._tuner is not None:
            shared["bucket_tuner"] = self._tuner
        return Parts(context=self.context, callbacks=self._callbacks, shared=shared)

    def _time(self, timings: Timings) -> None:
        """Put timers around what a batch is made of. Without them the loop has nothing of it."""
        timings.watch(self.context)
        self._trial_batch = timings.timed("train_batch", self._trial_batch)
        self._step_schedulers = timings.timed("step_lr_schedulers", self._step_schedulers)
        self._after_batch.append(lambda share: timings.end_batch(share.total))

    def _tune(self, share: Share) -> None:
        """Let the tuner try bucket sizes, and tell what it has come to."""
        assert self._tuner is not None
        self._tuner.after_batch(exchanged=self.position.is_step)
        if self._tuner.decision is not None:
            self._after_batch = [it for it in self._after_batch if it != self._tune]
            if self._distributed.is_chief:
                steps = self.steps_completed
                self._core.train.report_metrics("tensor_fusion", steps, self._tuner.decision)
                sys.stderr.write(f"auto_tune_tensor_fusion: {self._tuner.decision}\n")

    def _next_event(self) -> int:
        """Return after which batch there is something to do besides training."""
        steps = self.steps_completed
        self._boundary = self._schedule.next_boundary(steps)
        event = min(self._boundary, self._agreement.due_at)
        if self._interruption is not None and self._interruption.steps_completed > steps:
            event = min(event, self._interruption.steps_completed)
        return event

    def _at_event(self) -> Reason | None:
        """Do what is due after this batch, and return a reason to leave if there is one."""
        steps, is_boundary = self.steps_completed, self.steps_completed == self._boundary
        is_broken_off = False
        if self._interruption is not None and self._interruption.is_due(steps):
            self._interruption.carry_out(is_chief=self._distributed.is_chief)
            is_broken_off = True
        self._agreement.measure(steps)
        if self._has_stepped and self._rank_watch.is_due(
            steps, is_report=is_boundary, is_last=steps == self._schedule.target
        ):
            self._rank_watch.look(steps)
        if is_boundary:
            self._report()
            is_due = self._schedule.validates_at(steps)
            if self._schedule.saves_at(steps):
                self._savepoints.save(steps, due=self._due() if is_due else None)
                if is_due:
                    self._savepoints.finish()  # it has to be there if the validation fails
            if is_due:
                self._validate()
        verdict = self._agreement.exchange(
            steps,
            leave=is_broken_off or self._wants_to_leave(),
            stop=self.context.get_stop_requested(),
            is_written=self._savepoints.is_written,
        )
        if verdict.is_written:
            self._savepoints.finish()
        reason: Reason | None = None
        if verdict.stop and is_boundary and steps < self._schedule.end:
            reason = "stopped"
        elif steps == self._schedule.target:
            reason = self._at_target()
        elif verdict.leave:
            reason = "preempted"
        if not is_boundary and (reason or verdict.flush):
            self._flush()
        return self._leave(reason) if reason else None

    def _leave(self, reason: Reason) -> Reason:
        """Save what whoever goes on from here needs, and return the reason."""
        if reason == "preempted":
            self._callbacks.on_interrupt()
        if reason == "stopped":  # a training that is made longer later has not stopped
            self.context.set_stop_requested(False)
        self._savepoints.save(
            self.steps_completed, again=reason == "preempted", anew=reason == "stopped"
        )
        return reason

    def _due(self) -> str:
        """Return why there is a validation after this batch."""
        at_rung = self.steps_completed == self._schedule.target and not self._core.searcher.is_last
        return "rung" if at_rung else "scheduled"

    def _at_target(self) -> Reason | None:
        """Hear what the search wants now, and return a reason to leave if there is one."""
        searcher = self._core.searcher
        while self.steps_completed >= self._schedule.target:  # two lengths may be as many batches
            if not searcher.is_last:
                self._savepoints.finish()
                searcher.report_reached(self.steps_completed)
                if not searcher.await_next():
                    return "preempted"
            elif not searcher.was_extended():
                self._savepoints.save(self.steps_completed)
                self._savepoints.finish()  # before the word: the trial may be judged by it
                searcher.report_reached(self.steps_completed)
                return "completed"
            self._schedule.aim_at(searcher.target)
        self.position.end = self._schedule.end
        return None

    @contextmanager
    def _telling_last_batches(self) -> Iterator[None]:
        """When the training fails, tell of the batches that nobody has heard of yet."""
        try:
            yield
        except (Exception, SystemExit) as error:
            try:
                self._reporter.tell_last(self._schedule.end, error)
            except Exception as unreadable:  # a device that has failed, say
                error.add_note(f"The metrics of the last batches cannot be read: {unreadable}")
            raise

    def _flush(self) -> None:
        self._reporter.flush(self.steps_completed)
        self._flush_timings()

    def _flush_timings(self) -> None:
        record = self._timings.flush() if self._timings is not None else None
        if record is not None:
            self._core.sink.write(record)

    def _report(self) -> None:
        steps = self.steps_completed
        averages = self._reporter.report(steps, self._schedule.end, self._callbacks)
        self._flush_timings()
        if self.context.logs_to_tensorboard:
            self.context.tensorboard.log_training(steps, averages)

    def _validate(self) -> None:
        steps = self.steps_completed
        if self._validations.run(steps, self._schedule.units.trained(steps)):
            self._savepoints.save(steps)


def _as_it_is(batch: Any) -> Any:
    return batch
