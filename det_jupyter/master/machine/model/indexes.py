"""Indexes of the state: trials that hold slots, trials that are not over, keys of submissions.

They are derived from the state, and rebuilt from it after a restart. A handler that changes a
trial or an experiment calls `Turn.touch` afterwards, which updates them. Trials that wait for
slots are in queue.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from det_jupyter.master.machine.model.state import Experiment, MachineState, Trial


class Indexes:
    """Look-ups in a state. Lists of trials are sorted by id."""

    def __init__(self, state: MachineState) -> None:
        self._state = state
        self._on_agent: dict[str, set[int]] = {}  # by agent: the trials that hold slots there
        self._agents_of: dict[int, frozenset[str]] = {}  # by trial: the agents it holds slots on
        self._unfinished: dict[int, set[int]] = {}  # by experiment: its trials that are not over
        self._sources: dict[int, set[int]] = {}  # by experiment: see `sources_of`
        self._dependents: dict[int, dict[int, None]] = {}  # by experiment: see `dependents_of`
        self._submitted: dict[str, int] = {}  # experiments by the keys of their submissions
        for experiment in state.experiments.values():
            self.update_experiment(experiment)
        for trial in state.trials.values():
            self.update_trial(trial)

    def update_experiment(self, experiment: Experiment) -> None:
        """Add an experiment, if it is new: its key, and the sources of its checkpoints."""
        if experiment.id in self._sources:
            return
        if experiment.key:
            self._submitted[experiment.key] = experiment.id
        sources = self._sources[experiment.id] = set()
        start = experiment.warm_start
        if start is not None and (found := self._state.checkpoints.get(start.uuid)) is not None:
            sources.add(found.experiment_id)
        continued = self._state.trials.get(experiment.continues or 0)
        if continued is not None and continued.experiment_id != experiment.id:
            sources.add(continued.experiment_id)
        for source_id in sources:
            self._dependents.setdefault(source_id, {})[experiment.id] = None

    def update_trial(self, trial: Trial) -> None:
        """Update which slots a trial holds, and whether it is over."""
        unfinished = self._unfinished.setdefault(trial.experiment_id, set())
        if trial.state.is_terminal:
            unfinished.discard(trial.id)
        else:
            unfinished.add(trial.id)
        allocation = trial.allocation
        held: frozenset[str] = frozenset()
        is_unmanaged = self._state.experiments[trial.experiment_id].is_unmanaged
        if allocation is not None and allocation.holds_slots and not is_unmanaged:
            held = frozenset(allocation.agent_ids)
        before = self._agents_of.pop(trial.id, frozenset())
        for agent_id in before - held:
            self._on_agent[agent_id].remove(trial.id)
        for agent_id in held - before:
            self._on_agent.setdefault(agent_id, set()).add(trial.id)
        if held:
            self._agents_of[trial.id] = held

    def find_submitted(self, key: str) -> int | None:
        """Return the experiment that was submitted with this key, None if there is none."""
        experiment_id = self._submitted.get(key)
        return experiment_id if experiment_id in self._state.experiments else None

    def dependents_of(self, experiment_id: int) -> list[int]:
        """Return the experiments whose trials started from a checkpoint of this one."""
        return list(self._dependents.get(experiment_id, ()))

    def sources_of(self, experiment_id: int) -> list[int]:
        """Return the experiments from whose checkpoints the trials of this one started."""
        return sorted(self._sources.get(experiment_id, ()))

    def trials_on_agent(self, agent_id: str) -> list[Trial]:
        """Return the trials that hold slots of an agent."""
        return self._sorted(self._on_agent.get(agent_id, ()))

    @property
    def any_holds_slots(self) -> bool:
        """Whether any trial holds slots."""
        return bool(self._agents_of)

    def unfinished_trials(self, experiment_id: int) -> list[Trial]:
        """Return an experiment's trials that are not over."""
        return self._sorted(self._unfinished.get(experiment_id, ()))

    def has_unfinished_trials(self, experiment_id: int) -> bool:
        """Return whether any trial of an experiment is not over."""
        return bool(self._unfinished.get(experiment_id))

    def _sorted(self, ids: Iterable[int]) -> list[Trial]:
        return [self._state.trials[trial_id] for trial_id in sorted(ids)]
