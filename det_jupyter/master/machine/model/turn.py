"""A turn: one event being handled. Holds the state and collects what follows.

A handler that raises anything but a refusal ends its turn with HandlerFailed, and the state is not
to be used any more; rules/giving_up.py says what becomes of the experiment at fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from det_jupyter.contract.messages import AgentCommand
from det_jupyter.contract.values.text import error_line
from det_jupyter.master.machine.model.commands import Command, ToAgent
from det_jupyter.master.machine.model.indexes import Indexes
from det_jupyter.master.machine.model.queue import Queue
from det_jupyter.master.machine.model.state import Allocation, Experiment, MachineState, Trial
from det_jupyter.searcher import Search

_STORY_LENGTH = 20


class HandlerFailed(Exception):
    """A handler raised half way; the state that it worked on is not to be used any more.

    Attributes:
        experiment_id: Of the experiment at fault, where that is not the one of the event itself.
    """

    def __init__(self, message: str, experiment_id: int | None = None) -> None:
        super().__init__(message)
        self.experiment_id = experiment_id


@contextmanager
def on_behalf_of(experiment_id: int) -> Iterator[None]:
    """Attribute what raises inside to an experiment that the event need not be about.

    Raises:
        HandlerFailed: In the place of what was raised.
    """
    try:
        yield
    except HandlerFailed:
        raise
    except Exception as error:
        raise HandlerFailed(error_line(error), experiment_id) from error


class Searches:
    """The searches of the experiments that are not over, each made when it is first asked for.

    The state holds a search as a snapshot, which grows with every trial: to make the search anew
    for each event would cost more the longer it runs. So the searches live here, and snapshots are
    taken only when the machine's state is written down.
    """

    def __init__(self) -> None:
        self._alive: dict[int, Search] = {}

    def of(self, experiment: Experiment) -> Search:
        """Return an experiment's search."""
        search = self._alive.get(experiment.id)
        if search is None:
            settings = experiment.settings
            search = Search(
                settings.searcher,
                settings.hyperparameters,
                settings.reproducibility.experiment_seed,
                experiment.searcher,
            )
            self._alive[experiment.id] = search
        return search

    def forget(self, experiment: Experiment) -> None:
        """Drop the search of an experiment that is over."""
        self._alive.pop(experiment.id, None)
        experiment.searcher = None

    def write_into(self, state: MachineState) -> None:
        """Store snapshots of the searches in the state."""
        for experiment_id, search in self._alive.items():
            state.experiments[experiment_id].searcher = search.snapshot()

    def take_back(self, state: MachineState) -> None:
        """Remove the snapshots from the state again: it would hold them twice."""
        for experiment_id in self._alive:
            state.experiments[experiment_id].searcher = None


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
    queue: Queue
    searches: Searches
    now: float
    changes: Changes = field(default_factory=Changes)
    commands: list[Command] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)  # of passes of the scheduler

    def tell(self, agent_id: str, command: AgentCommand) -> None:
        """Send a command to an agent."""
        self.commands.append(ToAgent(agent_id=agent_id, command=command, cause=self.state.seq))

    def order(self, allocation: Allocation, command: AgentCommand) -> None:
        """Send a command to the agent that carries a gang."""
        assert allocation.agent_id is not None
        self.tell(allocation.agent_id, command)

    def touch(self, part: Experiment | Trial, what: str = "") -> None:
        """Note that an experiment or trial has changed; to be called after each change.

        Args:
            part: What has changed.
            what: The next line of the trial's story.
        """
        if isinstance(part, Experiment):
            self.changes.experiments.add(part.id)
            self.indexes.note_experiment(part)
            self.queue.note_experiment(part)
            return
        self.changes.trials.add(part.id)
        self.indexes.note([part])
        self.queue.note_trial(part)
        if what:
            part.story = [*part.story, f"#{self.state.seq} {what}"][-_STORY_LENGTH:]
