"""Indexes of the state: trials that hold slots, trials that are not over, keys of submissions.

They follow from the state, and are made anew from it after a restart. A handler that changes a
trial touches it afterwards (turn.py), which updates them. What waits for slots is in queue.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from det_jupyter.master.machine.model.state import Experiment, MachineState, Trial


class Indexes:
    """See the module's docstring; every list is in the order of the trials' numbers.

    Args:
        state: What it follows.
    """

    def __init__(self, state: MachineState) -> None:
        self._state = state
        self._holding: dict[str, dict[int, None]] = {}  # by agent
        self._living: dict[int, dict[int, None]] = {}  # by experiment
        self._held: dict[int, frozenset[str]] = {}  # the agents of each
        self._began_from: dict[int, set[int]] = {}  # by experiment: those it began from
        self._began_with: dict[int, dict[int, None]] = {}  # and those that began from it
        self._submitted: dict[str, int] = {}  # experiments by the keys of their submissions
        for experiment in state.experiments.values():
            self.note_experiment(experiment)
        self.note(state.trials.values())

    def note_experiment(self, experiment: Experiment) -> None:
        """Note an experiment's key, and the experiments whose checkpoints it begins with."""
        if experiment.id in self._began_from:
            return
        if experiment.key:
            self._submitted[experiment.key] = experiment.id
        sources = self._began_from[experiment.id] = set(self._sources_of(experiment))
        for source_id in sources:
            self._began_with.setdefault(source_id, {})[experiment.id] = None

    def _sources_of(self, experiment: Experiment) -> Iterator[int]:
        start = experiment.warm_start
        if start is not None and (found := self._state.checkpoints.get(start.uuid)) is not None:
            yield found.experiment_id
        trial = self._state.trials.get(experiment.continues or 0)
        if trial is not None and trial.experiment_id != experiment.id:
            yield trial.experiment_id

    def submitted(self, key: str) -> int | None:
        """Return the experiment that was submitted with this key, if it is still there."""
        experiment_id = self._submitted.get(key)
        return experiment_id if experiment_id in self._state.experiments else None

    def began_with(self, experiment_id: int) -> list[int]:
        """Return the experiments that began with a checkpoint of this one."""
        return list(self._began_with.get(experiment_id, ()))

    def began_from(self, experiment_id: int) -> list[int]:
        """Return the experiments with whose checkpoints this one began."""
        return sorted(self._began_from.get(experiment_id, ()))

    def note(self, trials: Iterable[Trial]) -> None:
        """Note trials as they are now."""
        for trial in trials:
            self._note_hold(trial)
            living = self._living.setdefault(trial.experiment_id, {})
            if trial.state.is_terminal:
                living.pop(trial.id, None)
            else:
                living[trial.id] = None

    def _note_hold(self, trial: Trial) -> None:
        allocation = trial.allocation
        held: frozenset[str] = frozenset()
        if allocation is not None and allocation.holds_slots:
            held = frozenset(allocation.agent_ids)
        before = self._held.pop(trial.id, frozenset())
        for agent_id in before - held:
            del self._holding[agent_id][trial.id]
        for agent_id in held - before:
            self._holding.setdefault(agent_id, {})[trial.id] = None
        if held:
            self._held[trial.id] = held

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
