"""Restores the machine from the store: the newest snapshot, and the events after it.

Commands that the machine returns for these events are dropped: they were carried out before, or
the machine repeats them when agents register.

An event that was handled once may fail now, because the program has changed or the file is
damaged. The master must start nevertheless:

    a snapshot that cannot be read      is quarantined; the one before it is used, and more events
    an event that cannot be read or     is quarantined; an event ContentSetAside replaces it and
      handled                           keeps its number, and its experiment ends

The ids of experiments and trials that such an event has created are not given to others, so that
later ones keep theirs.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

from det_jupyter.contract.messages import GangExited, State
from det_jupyter.contract.values.text import error_line
from det_jupyter.master.machine.machine import Machine
from det_jupyter.master.machine.model.events import ContentSetAside, Event, parse_event
from det_jupyter.master.machine.model.state import Experiment, MachineState, Trial
from det_jupyter.master.machine.rules.giving_up import content_set_aside, experiment_of
from det_jupyter.master.service.storing.quarantine import is_system_error
from det_jupyter.master.service.storing.store import Store

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _FailedEvent:
    """An event that could not be handled again, and the event that replaces it."""

    seq: int
    at: float
    text: str
    error: Exception
    experiment_id: int | None = None
    replacement: ContentSetAside | None = None


def restore_machine(store: Store) -> Machine:
    """Return the machine in its stored state; quarantine data that cannot be read or handled."""
    seq, snapshot, machine = _newest_readable(store)
    replay = _Replay(store, snapshot, machine)
    for number, at, text in store.history.events_after(seq):
        replay.handle_next(number, at, text)
    # A damaged file may lack events, but have rows of their experiments: a new experiment with the
    # same id would get these rows.
    is_raised = _raise_numbers(replay.machine.state, store.history.last_numbers())
    if replay.failed or is_raised:  # so that the reader starts with the same state
        _store_replacements(store, replay)
    return replay.machine


def _newest_readable(store: Store) -> tuple[int, str | None, Machine]:
    """Return number and text of the newest readable snapshot, and a machine in its state."""
    for seq, text in store.history.snapshots():
        try:
            return seq, text, machine_from(text)
        except Exception as error:  # an older one and more events give the same
            if is_system_error(error):
                raise
            logger.exception("the snapshot after event %d cannot be read", seq)
            with store.savepoint():
                store.quarantine.add(
                    0.0, source=f"snapshot {seq}", content=text, error=error, experiment_id=None
                )
                store.history.drop_snapshot(seq)
    return 0, None, Machine()


def machine_from(snapshot: str | None) -> Machine:
    if snapshot is None:
        return Machine()
    state = MachineState.model_validate_json(snapshot)
    for experiment in state.experiments.values():
        if "held_s" not in experiment.model_fields_set:
            _estimate_held(experiment, state.trials_of(experiment))
        _mark_pausing(experiment, state.trials_of(experiment))
    return Machine(state)


def _mark_pausing(experiment: Experiment, trials: Sequence[Trial]) -> None:
    """Correct PAUSED of experiments and trials with slots, of versions before 2026-11-25."""
    holding = [trial for trial in trials if trial.holds_slots]
    if holding and experiment.state is State.PAUSED:
        experiment.state = State.PAUSING
    for trial in holding:
        if trial.state is State.PAUSED:
            trial.state = State.PAUSING


def _estimate_held(experiment: Experiment, trials: Sequence[Trial]) -> None:
    """Estimate how long slots were held, as versions before 2026-11-24 did not store that."""
    for trial in trials:
        trial.held_s = trial.slot_seconds / max(1, experiment.slots_per_trial)
    holding = [trial.allocation for trial in trials if trial.holds_slots and trial.allocation]
    starts = [allocation.started_at or experiment.created_at for allocation in holding]
    experiment.held_since = min(starts, default=None)
    last = experiment.held_since or experiment.ended_at or math.inf
    # Trials that ran at the same time count once: together at most from submission to end.
    most = max(0.0, last - experiment.created_at)
    experiment.held_s = min(sum(trial.held_s for trial in trials), most)


class _Replay:
    """Handles stored events again, from a snapshot on."""

    def __init__(self, store: Store, base: str | None, machine: Machine) -> None:
        self._store = store
        self.machine = machine
        self.failed: list[_FailedEvent] = []
        self._base = base  # the machine's state before the events, as JSON
        # Events that were handled after that state.
        self._since: list[tuple[int, float, Event]] = []

    def handle_next(self, seq: int, at: float, text: str) -> None:
        """Handle the next event; if that fails, handle the event that replaces it."""
        event: Event | None = None
        try:
            event = parse_event(text)
            self._handle(seq, at, event)
        except Exception as error:  # an old or damaged event may raise anything
            if is_system_error(error):
                raise
            logger.exception("event %d cannot be handled any more: %.500s", seq, text)
            self._replace(_FailedEvent(seq, at, text, error), event)
        else:
            self._since.append((seq, at, event))

    def _handle(self, seq: int, at: float, event: Event) -> None:
        self.machine.state.seq = seq - 1  # a damaged file may lack rows
        self.machine.handle(event, at)
        if isinstance(event, ContentSetAside):
            self._keep_numbers(seq)

    def _keep_numbers(self, seq: int) -> None:
        """Reserve the ids that a replaced event had given to experiments and trials."""
        self.machine.state.seq = seq
        _raise_numbers(self.machine.state, self._store.history.numbers_after(seq))

    def _replace(self, failed: _FailedEvent, event: Event | None) -> None:
        self._rebuild()
        failed.experiment_id = _experiment_of(self.machine.state, failed.text, event)
        what = f"stored event {failed.seq} ({error_line(failed.error.__cause__ or failed.error)})"
        gone = event if isinstance(event, GangExited) else None
        for is_fatal in (True, False):
            failed.replacement = content_set_aside(
                failed.experiment_id, what, is_fatal=is_fatal, gone=gone
            )
            try:
                self._handle(failed.seq, failed.at, failed.replacement)
                break
            except Exception:  # a handler with a mistake may raise anything
                logger.exception("experiment=%s: ContentSetAside failed", failed.experiment_id)
                self._rebuild()
                failed.experiment_id = None
        self._keep_numbers(failed.seq)
        self.failed.append(failed)
        self._base, self._since = self.machine.dump(), []

    def _rebuild(self) -> None:
        """Make a new machine in the state before the event that failed."""
        self.machine = machine_from(self._base)
        for seq, at, event in self._since:
            self._handle(seq, at, event)


def _raise_numbers(state: MachineState, numbers: tuple[int, int]) -> bool:
    """Raise the last ids of experiments and trials to these; return whether any was less."""
    before = (state.last_experiment_id, state.last_trial_id)
    experiment_id, trial_id = numbers
    state.last_experiment_id = max(state.last_experiment_id, experiment_id)
    state.last_trial_id = max(state.last_trial_id, trial_id)
    return before != (state.last_experiment_id, state.last_trial_id)


def _experiment_of(state: MachineState, text: str, event: Event | None) -> int | None:
    """Return the event's experiment, from its JSON if the event could not be parsed."""
    if event is not None:
        return experiment_of(state, event)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    experiment_id = found.get("experiment_id") if isinstance(found, dict) else None
    return experiment_id if isinstance(experiment_id, int) else None


def _store_replacements(store: Store, replay: _Replay) -> None:
    """Store the replaced events and the resulting state for the next start."""
    with store.savepoint():
        for failed in replay.failed:
            store.quarantine.add(
                failed.at,
                source=f"event {failed.seq}",
                content=failed.text,
                error=failed.error,
                experiment_id=failed.experiment_id,
            )
            assert failed.replacement is not None
            store.history.replace_event(failed.seq, failed.replacement.model_dump_json())
        store.history.add_snapshot(replay.machine.state.seq, replay.machine.dump())
