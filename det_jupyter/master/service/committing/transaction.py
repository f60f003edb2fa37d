"""One transaction: the machine handles events, and their effects are written to the store.

Commands are only collected here; they are carried out after the commit. The changes of an event
are marked in the feed (feed.py).

    a request of a user     is handled, or refused, or fails: the user gets the error, and nothing
                            has changed
    an event of a program   is handled, or skipped, or set aside (quarantine.py); in each case it
                            is acknowledged, because otherwise it would be sent again for ever

If the body of `undoable` raises, all its effects are undone. The machine may then be changed in
part, and is restored from the stored events, which takes some milliseconds and is seldom needed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from det_jupyter.contract.messages import GangExited, Kill
from det_jupyter.contract.values.text import error_line, printable
from det_jupyter.errors import Conflict, DetError
from det_jupyter.master.machine.machine import Machine
from det_jupyter.master.machine.model.commands import (
    ConsultSampler,
    Deletion,
    ToAgent,
    TruncateMetrics,
)
from det_jupyter.master.machine.model.events import ContinueRequested, Event, Request
from det_jupyter.master.machine.model.turn import Changes, HandlerFailed
from det_jupyter.master.machine.rules.giving_up import content_set_aside, experiment_of
from det_jupyter.master.service.committing.restoring import restore_machine
from det_jupyter.master.service.storing.log_patterns import Matcher
from det_jupyter.master.service.storing.progress import StoredProgress
from det_jupyter.master.service.storing.quarantine import is_system_error
from det_jupyter.master.service.storing.store import Store

logger = logging.getLogger(__name__)

# The cost of a snapshot grows with the number of trials, and so does the number of events between
# two snapshots. At most so many events are replayed; ten thousand take about a second.
_SNAPSHOT_EVERY = 200
_EVENTS_PER_TRIAL = 0.2
_LONGEST_REASON = 300  # characters


class Transaction:
    """The machine and the store within one transaction.

    Args:
        store: The store, inside a transaction while this object exists.
        is_careful: Whether parts of the transaction can be undone. If not, any failure fails the
            whole transaction.
    """

    def __init__(
        self,
        machine: Machine,
        store: Store,
        now: float,
        matcher: Matcher,
        *,
        is_careful: bool = True,
    ) -> None:
        self.is_careful = is_careful
        self.machine = machine
        self.matcher = matcher
        self.progress = StoredProgress(machine.state, store)
        self.store = store
        self.now = now
        self.commands: list[ToAgent | ConsultSampler | Deletion] = []
        self.has_alerts = False  # whether an alert was raised
        self.is_machine_ahead = False  # whether a rollback must restore the machine
        self._queue_before = machine.queue.version

    def request(self, event: Request) -> None:
        """Handle a user's request.

        Raises:
            DetError: The request is refused, or the machine has failed at it; nothing has changed.
        """
        failed = self._try(event)
        if failed is None:
            return
        if isinstance(event, Kill):  # the experiment must end in any case
            self._set_aside_event(event, failed, event.experiment_id)
            return
        if isinstance(failed.__cause__, DetError):  # raised after changes, which are undone
            raise failed.__cause__
        logger.error("%s failed", _in_brief(event), exc_info=failed)
        raise Conflict(
            f"the master failed at {event.kind} ({failed}) and has changed nothing; "
            "master.log has the traceback"
        ) from failed

    def take(self, event: Event) -> bool:
        """Handle an event of a program; return False if it was set aside.

        An event that the machine refuses (about a run that is over, for example) is skipped.
        """
        try:
            failed = self._try(event)
        except DetError as error:
            logger.warning("refused: %s: %s", event.kind, error)
            return True
        if failed is not None:
            own = experiment_of(self.machine.state, event)
            self._set_aside_event(event, failed, own)
        return failed is None

    def _try(self, event: Event) -> Exception | None:
        """Handle an event; return an exception that the event or its experiment has caused.

        If another experiment has caused it, that experiment is ended, and the event is handled
        again.

        Raises:
            DetError: The event is refused; nothing has changed.
        """
        own = experiment_of(self.machine.state, event)
        blamed: set[int | None] = {own, None}
        while True:
            try:
                with self.undoable():
                    self.handle(event)
            except DetError:
                raise
            except Exception as error:  # a handler with a mistake may raise anything
                if self._fails_transaction(error):
                    raise
                culprit = error.experiment_id if isinstance(error, HandlerFailed) else None
                if culprit in blamed:
                    return error
                blamed.add(culprit)
                self._set_aside_event(event, error, culprit)
            else:
                return None

    def _set_aside_event(self, event: Event, error: Exception, experiment_id: int | None) -> None:
        self.set_aside(
            f"{event.kind} ({error_line(error.__cause__ or error)})",
            content=_as_text(event),
            error=error,
            experiment_id=experiment_id,
            gone=event if isinstance(event, GangExited) else None,
        )

    def set_aside(
        self,
        what: str,
        *,
        content: str,
        error: Exception,
        experiment_id: int | None,
        is_fatal: bool = True,
        gone: GangExited | None = None,
    ) -> None:
        """Quarantine content that could not be handled, and record that in its experiment.

        Args:
            what: A description of the content and its error, in one line.
            is_fatal: Whether the experiment cannot continue without it.
            gone: The report of exited ranks in the content, if there is one.
        """
        logger.error("experiment=%s: set aside: %s", experiment_id, what, exc_info=error)
        what = printable(what)[:_LONGEST_REASON]
        self.store.quarantine.add(
            self.now, source=what, content=content, error=error, experiment_id=experiment_id
        )
        if experiment_id is None:
            return
        event = content_set_aside(experiment_id, what, is_fatal=is_fatal, gone=gone)
        try:
            with self.undoable():
                self.handle(event)
        except Exception as failed:  # a handler with a mistake may raise anything
            if self._fails_transaction(failed):
                raise
            logger.exception("experiment=%d: ContentSetAside failed", experiment_id)

    def end_unreadable_experiments(self) -> None:
        """End experiments that this version cannot parse, as each of their events would fail."""
        for experiment in self.machine.state.unfinished_experiments():
            try:
                self.machine.searches.of(experiment)
            except Exception as error:  # data of another version may raise anything
                self.set_aside(
                    f"its stored configuration or search ({error_line(error)})",
                    content=experiment.model_dump_json(),
                    error=error,
                    experiment_id=experiment.id,
                )

    @contextmanager
    def setting_aside(
        self, what: str, *, content: object, experiment_id: int | None, is_fatal: bool
    ) -> Iterator[None]:
        """If the block raises, undo its effects and set its content aside; see `set_aside`."""
        try:
            with self.undoable():
                yield
        except Exception as error:  # a handler with a mistake may raise anything
            if self._fails_transaction(error):
                raise
            self.set_aside(
                f"{what} ({_one_line(error)})",
                content=str(content),
                error=error,
                experiment_id=experiment_id,
                is_fatal=is_fatal,
            )

    def _fails_transaction(self, error: BaseException) -> bool:
        """Return whether an error must fail the transaction, because it cannot be set aside."""
        return is_system_error(error) or not self.is_careful

    @contextmanager
    def undoable(self) -> Iterator[None]:
        """If the block raises, undo its rows, its changes of the machine and its commands."""
        if not self.is_careful:
            yield
            return
        num_commands = len(self.commands)
        seq, was_ahead = self.machine.state.seq, self.is_machine_ahead
        try:
            with self.store.savepoint():
                yield
        except BaseException as error:  # an interrupt too: its effects are undone
            del self.commands[num_commands:]
            self.progress.clear_cache()
            if self.machine.state.seq != seq and not is_system_error(error):
                self.machine.take_over(restore_machine(self.store))
                self.is_machine_ahead = was_ahead
            raise

    def handle(self, event: Event) -> None:
        """Let the machine handle an event; store the event and its changes.

        Raises:
            DetError: The machine refuses the event; nothing has changed.
            HandlerFailed: The machine is changed in part, until `undoable` or the transaction is
                left.
        """
        was_ahead, self.is_machine_ahead = self.is_machine_ahead, True
        state = self.machine.state
        numbers = (state.last_experiment_id, state.last_trial_id)
        try:
            commands = self.machine.handle(event, self.now)
        except DetError:
            self.is_machine_ahead = was_ahead
            raise
        seq = state.seq
        logger.info("event %d: %s", seq, _in_brief(event))
        for error in self.machine.scheduler_errors():
            logger.error("event %d: a pass of the scheduler failed", seq, exc_info=error)
        self.store.history.add_event(seq, self.now, event.model_dump_json())
        if numbers != (state.last_experiment_id, state.last_trial_id):
            self.store.history.add_numbers(seq, state.last_experiment_id, state.last_trial_id)
        for command in commands:
            if isinstance(command, TruncateMetrics):
                self._truncate(command)
            else:
                self.commands.append(command)
        changes = self.machine.changes()
        for alert in changes.alerts:
            self.store.alerts.add(state, alert, self.now)
            self.has_alerts = True
        for experiment_id in sorted(changes.experiments & state.experiments.keys()):
            if experiment_id > numbers[0] or isinstance(event, ContinueRequested):
                self.store.tracked.add_own(state, state.experiments[experiment_id])
        self._mark(changes)
        self._take_snapshot_if_due(seq)

    def _mark(self, changes: Changes) -> None:
        """Mark the changes of an event in the feed."""
        state, feed = self.machine.state, self.store.feed
        for experiment_id in sorted(changes.experiments & state.experiments.keys()):
            feed.mark("experiment", self.now, experiment_id)
        for experiment_id in sorted(changes.configs & state.experiments.keys()):
            feed.mark("config", self.now, experiment_id)
        for trial_id in sorted(changes.trials & state.trials.keys()):
            feed.mark("trial", self.now, state.trials[trial_id].experiment_id, trial_id)
        for uuid in sorted(changes.checkpoints & state.checkpoints.keys()):
            checkpoint = state.checkpoints[uuid]
            feed.mark("checkpoint", self.now, checkpoint.experiment_id, checkpoint.trial_id)

    def mark_moved(self) -> None:
        """Mark changes that are in no event: progress, verdicts, queues. Called last."""
        trials, feed = self.machine.state.trials, self.store.feed
        moved = sorted(self.progress.moved & trials.keys())
        for trial_id in moved:
            feed.mark("trial", self.now, trials[trial_id].experiment_id, trial_id)
        for experiment_id in sorted({trials[trial_id].experiment_id for trial_id in moved}):
            feed.mark("experiment", self.now, experiment_id)
        if self.machine.queue.version != self._queue_before:
            feed.mark("cluster", self.now)

    def _take_snapshot_if_due(self, seq: int) -> None:
        every = max(_SNAPSHOT_EVERY, int(_EVENTS_PER_TRIAL * len(self.machine.state.trials)))
        behind = seq - self.store.history.snapshot_seq
        if behind < every or (behind - every) % _SNAPSHOT_EVERY:
            return
        try:
            text = self.machine.dump()
        except Exception:  # the events are stored; it is tried again later
            logger.exception("no snapshot could be taken after event %d", seq)
            return
        self.store.history.add_snapshot(seq, text)

    def _truncate(self, command: TruncateMetrics) -> None:
        trial_id, steps_completed = command.trial_id, command.steps_completed
        self.store.truncate_metrics(trial_id, steps_completed)
        self.store.series.cut(trial_id, command.run, steps_completed)
        self.store.feed.add_truncation(self.now, command.experiment_id, trial_id, steps_completed)
        self.progress.cut(trial_id, steps_completed)


def _as_text(event: Event) -> str:
    try:
        return event.model_dump_json()
    except ValueError:  # the event contains text that UTF-8 cannot encode
        return repr(event)


def _in_brief(event: Event) -> str:
    about = ("experiment_id", "agent_id", "allocation_id", "rank", "steps_completed", "metric")
    values = [f"{name}={getattr(event, name)}" for name in about if hasattr(event, name)]
    record = getattr(event, "record", None)
    return " ".join([event.kind, *values, *([record.kind] if record else [])])


def _one_line(error: Exception) -> str:
    """Format an error in one line; of several validation errors, the first one."""
    if not isinstance(error, ValidationError):
        return error_line(error)
    first = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else first["msg"]
