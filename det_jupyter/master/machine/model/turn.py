"""A turn: the handling of one event. It holds the state and collects the changes and commands.

If a handler raises anything but a refusal, the turn ends with HandlerFailed, and the state must
not be used any more; rules/giving_up.py says what follows for the experiment at fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from det_jupyter.config import ExperimentConfig
from det_jupyter.contract.messages import AgentCommand
from det_jupyter.contract.values.alerts import AlertKind
from det_jupyter.contract.values.text import error_line
from det_jupyter.master.machine.model.allocations import Allocation, GangPart
from det_jupyter.master.machine.model.commands import Command, ToAgent
from det_jupyter.master.machine.model.indexes import Indexes
from det_jupyter.master.machine.model.queue import Queue
from det_jupyter.master.machine.model.state import Experiment, MachineState, Trial
from det_jupyter.searcher import Search

_STORY_LENGTH = 20  # events of a trial that are kept for error messages


class HandlerFailed(Exception):
    """A handler raised an unexpected error; the state may be half changed and must not be used.

    Attributes:
        experiment_id: The experiment at fault; None: the experiment that the event is about.
    """

    def __init__(self, message: str, experiment_id: int | None = None) -> None:
        super().__init__(message)
        self.experiment_id = experiment_id


@contextmanager
def attribute_errors_to(experiment_id: int) -> Iterator[None]:
    """Attribute errors in the block to this experiment, even if the event is about another one.

    Raises:
        HandlerFailed: In place of the error; it has the experiment.
    """
    try:
        yield
    except HandlerFailed:
        raise
    except Exception as error:  # a handler with a mistake may raise anything
        raise HandlerFailed(error_line(error), experiment_id) from error


class Searches:
    """The Search objects of experiments that are not over, each built at its first use.

    The state holds a search as a snapshot, whose size grows with the number of trials, so building
    a Search from it for each event would be slow. So the objects are kept here, and snapshots are
    written into the state only when the state is dumped.
    """

    def __init__(self) -> None:
        self._by_experiment: dict[int, Search] = {}

    def of(self, experiment: Experiment) -> Search:
        """Return an experiment's search; build it from the configuration and its snapshot."""
        search = self._by_experiment.get(experiment.id)
        if search is None:
            settings = experiment.settings
            search = Search(
                settings.searcher,
                settings.hyperparameters,
                settings.reproducibility.experiment_seed,
                experiment.searcher,
            )
            self._by_experiment[experiment.id] = search
        return search

    def discard(self, experiment: Experiment) -> None:
        """Remove the search of an experiment that is over."""
        self._by_experiment.pop(experiment.id, None)
        experiment.searcher = None

    def store_snapshots_in(self, state: MachineState) -> None:
        """Write snapshots of all searches into the state."""
        for experiment_id, search in self._by_experiment.items():
            state.experiments[experiment_id].searcher = search.snapshot()

    def clear_snapshots_in(self, state: MachineState) -> None:
        """Remove the snapshots from the state again, to save memory."""
        for experiment_id in self._by_experiment:
            state.experiments[experiment_id].searcher = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RaisedAlert:
    """An alert that is sent to the configured addresses (rules/alerts.py).

    Args:
        kind: The kind of alert.
        experiment_id: The experiment that it is about.
        trial_id: The trial that it is about, if it is about one.
        text: What has happened, as a sentence; "": only the kind.
    """

    kind: AlertKind
    experiment_id: int
    trial_id: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of an event: ids of experiments, trials, models; uuids of checkpoints; alerts.

    `configs` are ids of experiments whose configuration was replaced.
    """

    experiments: set[int] = field(default_factory=set)
    configs: set[int] = field(default_factory=set)
    trials: set[int] = field(default_factory=set)
    checkpoints: set[str] = field(default_factory=set)
    models: set[int] = field(default_factory=set)
    alerts: list[RaisedAlert] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Turn:
    """The state and look-ups that a handler changes, and the commands that it issues.

    The turn's number, which is also the `cause` of its commands, is `state.seq`.
    """

    state: MachineState
    indexes: Indexes
    queue: Queue
    searches: Searches
    now: float
    changes: Changes = field(default_factory=Changes)
    commands: list[Command] = field(default_factory=list)
    scheduler_errors: list[Exception] = field(default_factory=list)

    def send(self, agent_id: str, command: AgentCommand) -> None:
        """Add a command for an agent."""
        self.commands.append(ToAgent(agent_id=agent_id, command=command, cause=self.state.seq))

    def send_to_chief(self, allocation: Allocation, command: AgentCommand) -> None:
        """Add a command for the agent of a gang's chief; only the chief handles it."""
        self.send(allocation.parts[0].agent_id, command)

    def send_to_parts(self, parts: Iterable[GangPart], command: AgentCommand) -> None:
        """Add a command for the agent of each of these parts of a gang."""
        for part in parts:
            self.send(part.agent_id, command)

    def reconfigure(
        self,
        experiment: Experiment,
        config: dict[str, Any],
        origins: Iterable[str] = (),
        settings: ExperimentConfig | None = None,
    ) -> None:
        """Replace a configuration; see `Experiment.reconfigure`."""
        experiment.reconfigure(config, origins, settings)
        self.changes.configs.add(experiment.id)

    def change_section(
        self, experiment: Experiment, section: str, changed: dict[str, Any]
    ) -> None:
        """Replace values of a section of a configuration; the user is their origin."""
        config = experiment.config | {section: experiment.config[section] | changed}
        self.reconfigure(experiment, config, [f"{section}.{key}" for key in changed])

    def touch(self, changed: Experiment | Trial, what: str = "") -> None:
        """Record that an experiment or trial has changed; call it after each change.

        Args:
            changed: The experiment or trial.
            what: A text for the trial's `story`; "": none.
        """
        if isinstance(changed, Experiment):
            self.changes.experiments.add(changed.id)
            self.indexes.update_experiment(changed)
            self.queue.update_experiment(changed)
            return
        self.changes.trials.add(changed.id)
        self.indexes.update_trial(changed)
        self.queue.update_trial(changed)
        if what:
            changed.story = [*changed.story, f"#{self.state.seq} {what}"][-_STORY_LENGTH:]
