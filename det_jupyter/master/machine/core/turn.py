"""A turn: one event being handled. Holds the state and collects what follows."""

from __future__ import annotations

from dataclasses import dataclass, field

from det_jupyter.errors import NotFound
from det_jupyter.master.machine.core.commands import Command, ToAgent
from det_jupyter.master.machine.core.indexes import Indexes
from det_jupyter.master.machine.core.pools import Pools
from det_jupyter.master.machine.core.searches import Searches
from det_jupyter.master.machine.core.state import Experiment, MachineState, Trial
from det_jupyter.wire import AgentCommand

_STORY_LENGTH = 20


@dataclass(frozen=True, slots=True)
class Changes:
    """What an event touched."""

    experiments: set[int] = field(default_factory=set)
    trials: set[int] = field(default_factory=set)
    checkpoints: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Turn:
    """What handlers work on. Its number, and its commands' cause, is `state.seq`."""

    state: MachineState
    indexes: Indexes
    pools: Pools
    searches: Searches
    now: float
    changes: Changes = field(default_factory=Changes)
    commands: list[Command] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)  # of passes of the scheduler

    @property
    def has_changed(self) -> bool:
        """Whether anything was changed, or is to be done."""
        changes = self.changes
        touched = changes.experiments or changes.trials or changes.checkpoints
        return bool(touched or self.commands)

    def experiment(self, experiment_id: int) -> Experiment:
        """Return an experiment.

        Raises:
            NotFound: There is none of that number.
        """
        experiment = self.state.experiments.get(experiment_id)
        if experiment is None:
            raise NotFound(f"there is no experiment {experiment_id}; `list` shows those that are")
        return experiment

    def trials_of(self, experiment: Experiment) -> list[Trial]:
        """Return an experiment's trials, in the order of their making."""
        return [self.state.trials[trial_id] for trial_id in experiment.trial_ids]

    def living_trials_of(self, experiment: Experiment) -> list[Trial]:
        """Return those that are not over."""
        return self.indexes.living(experiment.id)

    def tell(self, agent_id: str, command: AgentCommand) -> None:
        """Have a command sent to an agent."""
        self.commands.append(ToAgent(agent_id=agent_id, command=command, cause=self.state.seq))

    def touch(self, part: Experiment | Trial, what: str = "") -> None:
        """Note that a part has changed; to be called after each change.

        Args:
            part: What has changed.
            what: The next line of a trial's story.
        """
        if isinstance(part, Experiment):
            self.changes.experiments.add(part.id)
            self.indexes.note_experiment(part)
            self.pools.note_experiment(part)
            return
        self.changes.trials.add(part.id)
        self.indexes.note([part])
        self.pools.note_trial(part)
        if what:
            part.story = [*part.story, f"#{self.state.seq} {what}"][-_STORY_LENGTH:]
