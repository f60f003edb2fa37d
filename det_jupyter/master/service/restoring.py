"""Makes the machine that the store knows: the newest snapshot, and later events again.

What it commands meanwhile was carried out before, or will be commanded again when agents register.

An event that was handled once may not be any more: the program has changed since, or the file is
damaged. Then the master must start all the same:

    a snapshot that cannot be read      goes into quarantine; the one before it, and more events
    an event that cannot be read or     goes into quarantine; in its place, under its number, comes
      handled                           the news that it was set aside, so its experiment ends

Experiments and trials that such an event would have made keep their numbers: those that came after
them must not get others than they had.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

from det_jupyter.contract.messages import GangExited
from det_jupyter.contract.values.text import error_line
from det_jupyter.master.machine.machine import Machine
from det_jupyter.master.machine.model.events import Event, NewsSetAside, parse_event
from det_jupyter.master.machine.model.state import Experiment, MachineState, Trial
from det_jupyter.master.machine.rules.giving_up import experiment_of
from det_jupyter.master.service.quarantine import is_system_error
from det_jupyter.master.service.store import Store

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Odd:
    """An event that could not be handled again, and what comes in its place."""

    seq: int
    at: float
    text: str
    error: Exception
    experiment_id: int | None = None
    instead: NewsSetAside | None = None


def restore_machine(store: Store) -> Machine:
    """Return the machine as the store knows it; what cannot be read or handled is set aside."""
    seq, snapshot, machine = _newest_readable(store)
    replay = _Replay(store, snapshot, machine)
    for number, at, text in store.history.events_after(seq):
        replay.bring_forward(number, at, text)
    # Events may be missing, but what is stored of their experiments' files is not: a new one with
    # the same number would be taken for it.
    _raise_numbers(replay.machine.state, store.history.last_numbers())
    if replay.odd:
        _write_down(store, replay)
    return replay.machine


def _newest_readable(store: Store) -> tuple[int, str | None, Machine]:
    """Return number and text of the newest state that can be read, and a machine that is in it."""
    for seq, text in store.history.snapshots():
        try:
            return seq, text, _read(text)
        except Exception as error:  # the events before it are there, too
            if is_system_error(error):
                raise
            logger.exception("the snapshot after event %d cannot be read", seq)
            with store.savepoint():
                store.quarantine.add(
                    0.0, source=f"snapshot {seq}", content=text, error=error, experiment_id=None
                )
                store.history.drop_snapshot(seq)
    return 0, None, Machine()


def _read(snapshot: str | None) -> Machine:
    if snapshot is None:
        return Machine()
    state = MachineState.model_validate_json(snapshot)
    for experiment in state.experiments.values():
        if "held_s" not in experiment.model_fields_set:
            _estimate_held(experiment, state.trials_of(experiment))
    return Machine(state)


def _estimate_held(experiment: Experiment, trials: Sequence[Trial]) -> None:
    """Set how long slots were held, which versions before 2026-11-24 did not store."""
    for trial in trials:
        trial.held_s = trial.slot_seconds / max(1, experiment.slots_per_trial)
    holding = [trial.allocation for trial in trials if trial.holds_slots and trial.allocation]
    starts = [allocation.started_at or experiment.created_at for allocation in holding]
    experiment.held_since = min(starts, default=None)
    last = experiment.held_since or experiment.ended_at or math.inf
    # Trials that ran side by side count once: together at most from submission to end.
    most = max(0.0, last - experiment.created_at)
    experiment.held_s = min(sum(trial.held_s for trial in trials), most)


class _Replay:
    """Events being handled again."""

    def __init__(self, store: Store, base: str | None, machine: Machine) -> None:
        self._store = store
        self.machine = machine
        self.odd: list[_Odd] = []
        self._base = base
        self._since: list[tuple[int, float, Event]] = []  # what was handled after that state

    def bring_forward(self, seq: int, at: float, text: str) -> None:
        """Handle the next event, or the news that it was set aside."""
        event: Event | None = None
        try:
            event = parse_event(text)
            self._handle(seq, at, event)
        except Exception as error:
            if is_system_error(error):
                raise
            logger.exception("event %d cannot be handled any more: %.500s", seq, text)
            self._set_aside(_Odd(seq, at, text, error), event)
        else:
            self._since.append((seq, at, event))

    def _handle(self, seq: int, at: float, event: Event) -> None:
        self.machine.state.seq = seq - 1  # as rule; a row may be missing from a damaged file
        self.machine.handle(event, at)
        if isinstance(event, NewsSetAside):
            self._keep_numbers(seq)

    def _keep_numbers(self, seq: int) -> None:
        """Let nothing get a number that was given by an event which is set aside."""
        self.machine.state.seq = seq
        _raise_numbers(self.machine.state, self._store.history.numbers_after(seq))

    def _set_aside(self, odd: _Odd, event: Event | None) -> None:
        self._go_back()
        odd.experiment_id = _experiment_of(self.machine.state, odd.text, event)
        what = f"stored event {odd.seq} ({error_line(odd.error.__cause__ or odd.error)})"
        gone = event.allocation_id if isinstance(event, GangExited) else ""
        for is_fatal in (True, False):
            odd.instead = NewsSetAside(
                experiment_id=odd.experiment_id, what=what, is_fatal=is_fatal, gone=gone
            )
            try:
                self._handle(odd.seq, odd.at, odd.instead)
                break
            except Exception:
                logger.exception("experiment=%s cannot be told of it", odd.experiment_id)
                self._go_back()
                odd.experiment_id = None
        self._keep_numbers(odd.seq)
        self.odd.append(odd)
        self._base, self._since = self.machine.dump(), []

    def _go_back(self) -> None:
        """Make the machine anew, as it was before the event that spoiled it."""
        self.machine = _read(self._base)
        for seq, at, event in self._since:
            self._handle(seq, at, event)


def _raise_numbers(state: MachineState, numbers: tuple[int, int]) -> None:
    experiment_id, trial_id = numbers
    state.last_experiment_id = max(state.last_experiment_id, experiment_id)
    state.last_trial_id = max(state.last_trial_id, trial_id)


def _experiment_of(state: MachineState, text: str, event: Event | None) -> int | None:
    """Return whose event it is, as far as that can be read."""
    if event is not None:
        return experiment_of(state, event)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    experiment_id = found.get("experiment_id") if isinstance(found, dict) else None
    return experiment_id if isinstance(experiment_id, int) else None


def _write_down(store: Store, replay: _Replay) -> None:
    """Have the next start find what this one has made of it."""
    with store.savepoint():
        for odd in replay.odd:
            store.quarantine.add(
                odd.at,
                source=f"event {odd.seq}",
                content=odd.text,
                error=odd.error,
                experiment_id=odd.experiment_id,
            )
            assert odd.instead is not None
            store.history.replace_event(odd.seq, odd.instead.model_dump_json())
        store.history.add_snapshot(replay.machine.state.seq, replay.machine.dump())
