"""The master's verbs as Python calls; holds a session and no state."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

from det_jupyter.session import Session
from det_jupyter.wire import (
    AgentView,
    CheckpointView,
    CreateExperiment,
    Curve,
    ExperimentView,
    FeedItem,
    LogLine,
    TrialView,
)


class Client:
    """What can be asked of the master; a refusal is raised as the DetError that it names."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def create(self, request: CreateExperiment) -> ExperimentView:
        """Submit an experiment."""
        # A submission is not repeatable. If the master has died since we last asked, this finds
        # the next one before anything is at stake.
        self.session.get("/master")
        return ExperimentView.model_validate(
            self.session.post("/experiments", request.model_dump(mode="json"))
        )

    def experiments(self) -> list[ExperimentView]:
        """Return all experiments, oldest first."""
        return [ExperimentView.model_validate(item) for item in self.session.get("/experiments")]

    def experiment(self, experiment_id: int) -> ExperimentView:
        """Return one experiment."""
        return ExperimentView.model_validate(self.session.get(f"/experiments/{experiment_id}"))

    def command(self, experiment_id: int, verb: str) -> ExperimentView:
        """Ask for `pause`, `activate`, `cancel` or `kill`; safe to repeat."""
        return ExperimentView.model_validate(
            self.session.post(f"/experiments/{experiment_id}/{verb}", repeatable=True)
        )

    def trial(self, trial_id: int) -> TrialView:
        """Return one trial."""
        return TrialView.model_validate(self.session.get(f"/trials/{trial_id}"))

    def curves(self, experiment_id: int, *, max_points: int | None = None) -> list[Curve]:
        """Return every metric of every trial of an experiment."""
        answer = self.session.get(f"/experiments/{experiment_id}/curves", max_points=max_points)
        return [Curve.model_validate(item) for item in answer]

    def checkpoints(self, experiment_id: int) -> list[CheckpointView]:
        """Return the checkpoints of an experiment, oldest first."""
        answer = self.session.get(f"/experiments/{experiment_id}/checkpoints")
        return [CheckpointView.model_validate(item) for item in answer]

    def logs(
        self,
        trial_id: int,
        *,
        rank: int | None = None,
        after: int | None = None,
        tail: int | None = None,
    ) -> list[LogLine]:
        """Return lines that the ranks of a trial printed."""
        answer = self.session.get(f"/trials/{trial_id}/logs", rank=rank, after=after, tail=tail)
        return [LogLine.model_validate(item) for item in answer]

    def agents(self) -> list[AgentView]:
        """Return the agents and their slots."""
        return [AgentView.model_validate(item) for item in self.session.get("/agents")]

    def feed(self, experiment_id: int, *, after: int) -> Generator[FeedItem | None, None, None]:
        """Yield what happens to an experiment, from number `after` on; None is a heartbeat."""
        with closing(
            self.session.stream("/feed", after=after, experiment_id=experiment_id, follow="true")
        ) as lines:
            for line in lines:
                yield None if line is None else FeedItem.model_validate(line)
