"""The parts that the senders of all trackers share: reading from the master, and errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from det_jupyter.client.client import Client
from det_jupyter.contract.messages import (
    CheckpointView,
    Curve,
    ExperimentView,
    FeedItem,
    TrackerProgress,
    TrackerWork,
)
from det_jupyter.contract.messages.trackers import MOST_OF_PROBLEM
from det_jupyter.contract.values.text import shortened
from det_jupyter.errors import NotFound
from det_jupyter.trackers.contents import RunFacts, facts_of


class Unreachable(Exception):
    """The tracker cannot be reached, or refuses everything; the text has the reason."""


class TrackerRefused(Exception):
    """The tracker refuses the data of one experiment, or fails at it; the text has the reason."""


class Sender(Protocol):
    """Sends experiments to one tracker. Data that is sent twice must be stored once.

    Its method raises Unreachable or TrackerRefused; other exceptions are bugs.
    """

    def send(self, work: TrackerWork) -> None:
        """Send what is new of an experiment, and store its new position in the master."""


class MasterFeed:
    """Reads from the master, and reports to it.

    Args:
        client: The client of the master.
        computer: The name of the master's computer.
    """

    def __init__(self, client: Client, computer: str) -> None:
        self._client = client
        self._computer = computer
        self._experiments: dict[int, ExperimentView] = {}
        self._checkpoints: dict[int, list[CheckpointView]] = {}

    def pages(self, experiment_id: int, after: int) -> Iterator[list[FeedItem]]:
        """Yield the feed items of an experiment after the item `after`, a page at a time."""
        while items := self._client.items(experiment_id, after=after):
            self._drop_outdated(experiment_id, items)
            yield items
            after = items[-1].seq

    def _drop_outdated(self, experiment_id: int, items: Iterable[FeedItem]) -> None:
        for item in items:
            if item.kind == "config":
                self._experiments.pop(experiment_id, None)
            elif item.kind == "checkpoint":
                self._checkpoints.pop(experiment_id, None)

    def experiment(self, experiment_id: int) -> ExperimentView:
        """Return an experiment; its trials may be older than those that `facts` returns."""
        if experiment_id not in self._experiments:
            self._experiments[experiment_id] = self._client.experiment(experiment_id)
        return self._experiments[experiment_id]

    def facts(self, experiment_id: int, trial_id: int) -> RunFacts:
        """Return the present data of a trial that a tracker gets, except its metrics."""
        if experiment_id not in self._checkpoints:
            self._checkpoints[experiment_id] = self._client.checkpoints(experiment_id)
        return facts_of(
            self.experiment(experiment_id),
            self._client.trial(trial_id),
            self._checkpoints[experiment_id],
            computer=self._computer,
        )

    def curves(self, experiment_id: int) -> list[Curve]:
        """Return every metric of every trial of an experiment."""
        return self._client.curves(experiment_id)

    def code(self, experiment_id: int) -> dict[str, str]:
        """Return the source code of an experiment by name, as far as it is stored."""
        try:
            return self._client.code(experiment_id)
        except NotFound:  # if the experiment was deleted, other requests fail too
            return {}

    def advance(self, work: TrackerWork, after: int, progress: TrackerProgress) -> None:
        """Store in the master how far an experiment was sent, and the data of its runs.

        Args:
            after: Number of the last feed item that the tracker had before.
        """
        self._client.advance_tracker(work.id, progress.model_copy(update={"after": after}))

    def report(self, work: TrackerWork, problem: str, *, is_unreachable: bool = False) -> None:
        """Store why an experiment could not be sent, or why the tracker cannot be reached."""
        why = shortened(problem, MOST_OF_PROBLEM)
        progress = TrackerProgress(problem=why, is_unreachable=is_unreachable)
        self._client.advance_tracker(work.id, progress)

    def work(self, group: str) -> list[TrackerWork]:
        """Return some experiments of a group that have something new to send."""
        return self._client.tracker_work(group)
