"""Which trials wait, hold slots, or are not over: what else would be found by looking at all.

Follows from the state, and is made anew from it after a restart. Whoever changes a trial touches
it afterwards (turn.py), and the roster takes note.
"""

from __future__ import annotations

from collections.abc import Iterable

from det_jupyter.master.state import MachineState, Trial
from det_jupyter.wire import AllocationState


class Roster:
    """See the module's docstring; every list is in the order of the trials' numbers.

    Args:
        state: What it follows.
    """

    def __init__(self, state: MachineState) -> None:
        self._state = state
        self._waiting: dict[int, None] = {}
        self._holding: dict[str, dict[int, None]] = {}  # by agent
        self._living: dict[int, dict[int, None]] = {}  # by experiment
        self._held: dict[int, tuple[str, bool]] = {}  # agent, and whether it is leaving
        self.version = 0  # counts changes of who waits and who holds slots
        self.note(state.trials.values())

    def note(self, trials: Iterable[Trial]) -> None:
        """Take note of trials as they are now."""
        for trial in trials:
            self._note_wait(trial)
            self._note_hold(trial)
            living = self._living.setdefault(trial.experiment_id, {})
            if trial.state.is_terminal:
                living.pop(trial.id, None)
            else:
                living[trial.id] = None

    def _note_wait(self, trial: Trial) -> None:
        allocation = trial.allocation
        waits = allocation is not None and allocation.state is AllocationState.QUEUED
        if waits == (trial.id in self._waiting):
            return
        self.version += 1
        if waits:
            self._waiting[trial.id] = None
        else:
            del self._waiting[trial.id]

    def _note_hold(self, trial: Trial) -> None:
        allocation = trial.allocation
        held = None
        if allocation is not None and allocation.agent_id and allocation.holds_slots:
            held = (allocation.agent_id, allocation.state is AllocationState.STOPPING)
        before = self._held.get(trial.id)
        if held == before:
            return
        self.version += 1  # that a gang is leaving is something to tell those who wait
        if before is not None:
            del self._holding[before[0]][trial.id]
            del self._held[trial.id]
        if held is not None:
            self._holding.setdefault(held[0], {})[trial.id] = None
            self._held[trial.id] = held

    def waiting(self) -> list[Trial]:
        """Return the trials that wait for slots."""
        return self._listed(self._waiting)

    def holding(self, agent_id: str) -> list[Trial]:
        """Return the trials that hold slots of an agent."""
        return self._listed(self._holding.get(agent_id, {}))

    @property
    def has_holding(self) -> bool:
        """Whether any trial holds slots."""
        return bool(self._held)

    def living(self, experiment_id: int) -> list[Trial]:
        """Return an experiment's trials that are not over."""
        return self._listed(self._living.get(experiment_id, {}))

    def has_living(self, experiment_id: int) -> bool:
        """Return whether any trial of an experiment is not over."""
        return bool(self._living.get(experiment_id))

    def _listed(self, ids: Iterable[int]) -> list[Trial]:
        return [self._state.trials[trial_id] for trial_id in sorted(ids)]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Roster):
            return NotImplemented
        return self._facts() == other._facts()

    __hash__ = None  # type: ignore[assignment]  # it changes

    def _facts(self) -> tuple[object, ...]:
        filled = ({k: set(v) for k, v in d.items() if v} for d in (self._holding, self._living))
        return (set(self._waiting), *filled)
