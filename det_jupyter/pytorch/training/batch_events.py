"""Events: what happens between two batches, on all ranks after the same batch.

    1. at a boundary (schedule.py): report; save if a checkpoint is due; validate
    2. the ranks exchange their requests (agreement.py)
    3. carry out the orders of users (live_orders.py)
    4. flush the metrics, complete a checkpoint, or save and leave

A checkpoint starts with a snapshot of the state. Training continues while it is written; it is
finished at the first exchange after that, or before a validation (checkpoints/saver.py).

If a validation fails, the training before it must not be lost. So a checkpoint that is due is
saved before the validation, and a run that is preempted at such a batch saves again after it
(checkpoints/savepoints.py). Every run saves before it leaves, after the events of a boundary at
this batch, so the next run starts with the next batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from det_jupyter.core import Context
from det_jupyter.core.timings.rank_timings import AnyTimings
from det_jupyter.pytorch.agreement import Agreement
from det_jupyter.pytorch.checkpoints.savepoints import Savepoints
from det_jupyter.pytorch.metrics.evaluation import set_training
from det_jupyter.pytorch.metrics.reporting import Reporter
from det_jupyter.pytorch.metrics.validations import Validations
from det_jupyter.pytorch.rules import RunRules, RunStart
from det_jupyter.pytorch.training.interruptions import Interruption
from det_jupyter.pytorch.training.live_orders import LiveOrders
from det_jupyter.pytorch.training.rank_watch import RankWatch
from det_jupyter.pytorch.training.rehearsal import Rehearsal
from det_jupyter.pytorch.training.schedule import Schedule
from det_jupyter.pytorch.trial.callback_runner import Callbacks
from det_jupyter.pytorch.trial.context import PyTorchTrialContext

Reason = Literal["completed", "preempted", "stopped"]


@dataclass(eq=False, kw_only=True)
class Events:
    """The events of one run. All ranks call every method after the same batches."""

    context: PyTorchTrialContext
    core: Context  # this rank's journal, collectives and control page
    rules: RunRules
    start: RunStart
    callbacks: Callbacks
    schedule: Schedule
    reporter: Reporter
    validations: Validations
    savepoints: Savepoints
    orders: LiveOrders
    timings: AnyTimings
    interruption: Interruption | None  # of a run that verifies resuming
    rehearsal: Rehearsal | None  # of a run that only measures
    is_leave_requested: Callable[[], bool]  # on this rank: by an interrupt, or a rehearsal

    def __post_init__(self) -> None:
        self._distributed = self.core.distributed
        self._num_flushes = 0
        self.is_at_boundary = True  # within an event that the next run could not repeat
        self.boundary_at = 0  # batches trained at the last one
        self._rank_watch = RankWatch(self.rules.check_ranks, self.core, self.context.models)
        if self._distributed.size > 1:
            self._rank_watch.reduce = self.timings.timed_exchange(self._rank_watch.reduce)

    def begin(self) -> Reason | None:
        """Restore the checkpoint, and run the validation that is still due, if there is one.

        Return a reason to leave without training, or None.
        """
        steps = self.start.steps_completed
        self.core.preempt.note_reading()
        self.savepoints.restore()
        self.orders.begin(self.schedule)
        set_training(self.context.models)
        self.callbacks.on_training_start()
        due = self.savepoints.restore_generators()
        if due == "rung" or (due == "scheduled" and self.schedule.validates_at(steps)):
            self._validate(steps)
            stops = self._distributed.allgather(self.context.get_stop_requested())
            if any(stops) and steps < self.schedule.end:
                return self._leave(steps, "stopped")
        elif self.start.checkpoint is None and self.rules.initial_validation:
            self._validate(steps)
        self.orders.carry_out(steps)
        self.savepoints.watch_unsaved()
        # The checkpoint may have been saved at the target.
        reason = self._at_target(steps)
        if reason is None:
            preempt = self.core.preempt
            self._agreement = Agreement(self._distributed, preempt, steps_completed=steps)
            self._exchange = self._agreement.exchange
            if self._distributed.size > 1:
                self._exchange = self.timings.timed_exchange(self._exchange)
        return reason

    def next_after(self, steps: int) -> int:
        """Return the batch count after which the next event is."""
        self.is_at_boundary = False
        self._boundary = self.schedule.next_boundary(steps)
        event = min(self._boundary, self._agreement.due_at, self.orders.next_after(steps))
        if self.interruption is not None and self.interruption.steps_completed > steps:
            event = min(event, self.interruption.steps_completed)
        return event

    def is_boundary(self, steps: int) -> bool:
        """Return whether the event after batch `steps` reports, saves or validates."""
        return steps == self._boundary

    def handle(self, steps: int, *, has_stepped: bool) -> Reason | None:
        """Run the event after batch `steps`; `has_stepped`: an optimizer has stepped in this run.

        Returns:
            A reason to leave, with the state saved; or None.

        Raises:
            TrialMistake: Metrics are wrong, a loss is not finite, or the ranks have diverged.
        """
        self.is_at_boundary = is_boundary = self.is_boundary(steps)
        is_interrupted = False
        if self.interruption is not None and self.interruption.steps_completed == steps:
            self.interruption.carry_out(is_chief=self._distributed.is_chief)
            is_interrupted = True
        self._agreement.measure(steps)
        if has_stepped and self._rank_watch.is_due(
            steps, is_report=is_boundary, is_last=steps == self.schedule.target
        ):
            self._rank_watch.compare(steps)
        if is_boundary:
            self.boundary_at = steps
            self._at_boundary(steps)
        decision = self._exchange(
            steps,
            leave=is_interrupted or self.is_leave_requested(),
            stop=self.context.get_stop_requested(),
            is_written=self.savepoints.is_written,
            has_orders=self.orders.are_waiting(),
        )
        self.orders.carry_out(steps, are_new=bool(decision.has_orders))
        if decision.is_written:
            self.savepoints.finish()
        reason: Reason | None = None
        if decision.stop and is_boundary and steps < self.schedule.end:
            reason = "stopped"
        elif steps == self.schedule.target:
            reason = self._at_target(steps)
        elif decision.leave:
            reason = "preempted"
        if not is_boundary and (reason or decision.flush):
            self.reporter.flush(steps)
        if decision.flush:
            self._num_flushes += 1
            if self._num_flushes % 2 == 0:  # a common time on all ranks, about once a second
                self.timings.journal_batches(self.core.sink)
        return self._leave(steps, reason) if reason else None

    @contextmanager
    def reporting_last_batches(self) -> Iterator[None]:
        """If the block raises, journal the metrics of the batches since the last flush."""
        try:
            yield
        except (Exception, SystemExit) as error:  # the user's code may also exit
            try:
                self.reporter.report_last(self.schedule.end, error)
            except Exception as unreadable:  # a failed device, for example
                error.add_note(f"The metrics of the last batches cannot be read: {unreadable}")
            raise

    def _at_boundary(self, steps: int) -> None:
        averages = self.reporter.report(steps, self.schedule.end, self.callbacks)
        self.context.tensorboard.log_training(steps, averages)
        validates = self.schedule.validates_at(steps)
        if self.schedule.saves_at(steps):
            due = None
            if validates:
                at_rung = steps == self.schedule.target and not self.core.searcher.is_last
                due = "rung" if at_rung else "scheduled"
            self._save(steps, due=due, is_still=validates)
            if validates:
                self.savepoints.finish()  # before the validation, which may fail
        if validates:
            self._validate(steps)

    def _validate(self, steps: int) -> None:
        with self.timings.timed_block("validation"):
            has_to_save = self.validations.run(steps, self.schedule.units.trained(steps))
        if has_to_save:
            self._save(steps)

    def _at_target(self, steps: int) -> Reason | None:
        """Report a target that is reached, and wait for the search's next one.

        Return a reason to leave, or None if training continues.
        """
        searcher = self.core.searcher
        while steps >= self.schedule.target:  # two lengths may be equal in batches
            if not searcher.is_last:
                self.savepoints.finish()
                searcher.report_reached(steps)
                if not searcher.await_next():
                    return "preempted"
            elif not searcher.was_extended():
                self._save(steps, is_still=True)
                self.savepoints.finish()  # before the report: the search may use the checkpoint
                searcher.report_reached(steps)
                return "completed"
            self.schedule.aim_at(searcher.target)
        self.context.position.end = self.schedule.end
        return None

    def _leave(self, steps: int, reason: Reason) -> Reason:
        """Save the state for the next run, unless this is a rehearsal, and return the reason."""
        if self.rehearsal is not None:
            self.rehearsal.end(steps)
            return "stopped"
        if reason == "preempted":
            self.core.preempt.note_saving()
            self.callbacks.on_interrupt()
        if reason == "stopped":  # so that the trial can be extended later
            self.context.set_stop_requested(False)
        again, anew = reason == "preempted", reason == "stopped"
        self._save(steps, again=again, anew=anew, is_still=True)
        return reason

    def _save(self, steps: int, **options: Any) -> None:
        """Begin a checkpoint; `options` as in `Savepoints.save`. Collective.

        The times so far are journaled before. So if this run is killed, and the next one begins
        at the checkpoint, no batch is without times, and none is counted twice.
        """
        self.timings.journal_batches(self.core.sink)
        self.savepoints.save(steps, **options)
