"""The master's verbs as Python calls; holds a session and no state."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import closing
from typing import Any
from urllib.parse import quote

from det_jupyter.client.asking import ask_for
from det_jupyter.session import Session
from det_jupyter.wire import (
    AgentView,
    ChangeSearch,
    CheckpointView,
    ContinueTrial,
    CreateExperiment,
    Curve,
    EffectiveConfig,
    ExperimentView,
    FeedItem,
    LogLine,
    PreviewRequest,
    PreviewView,
    SetTemplate,
    TemplateView,
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

    def effective_config(self, experiment_id: int) -> EffectiveConfig:
        """Return an experiment's whole configuration, and where its values come from."""
        answer = self.session.get(f"/experiments/{experiment_id}/config")
        return EffectiveConfig.model_validate(answer)

    def preview(self, request: PreviewRequest) -> PreviewView:
        """Return what a search would train; nothing is submitted."""
        answer = self.session.post("/preview", request.model_dump(mode="json"), repeatable=True)
        return PreviewView.model_validate(answer)

    def change_search(self, experiment_id: int, change: ChangeSearch) -> ExperimentView:
        """Give a running search other limits; safe to repeat."""
        body = change.model_dump(mode="json")
        path = f"/experiments/{experiment_id}/search"
        return ExperimentView.model_validate(self.session.post(path, body, repeatable=True))

    def trial(self, trial_id: int) -> TrialView:
        """Return one trial."""
        return TrialView.model_validate(self.session.get(f"/trials/{trial_id}"))

    def kill_trial(self, trial_id: int) -> TrialView:
        """End one trial now; its experiment goes on. Safe to repeat."""
        return TrialView.model_validate(
            self.session.post(f"/trials/{trial_id}/kill", repeatable=True)
        )

    def train_on(self, trial_id: int, request: ContinueTrial) -> ExperimentView:
        """Train a trial on, as an experiment of its own."""
        self.session.get("/master")  # as for `create`
        body = request.model_dump(mode="json")
        return ExperimentView.model_validate(
            self.session.post(f"/trials/{trial_id}/continue", body)
        )

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

    def templates(self) -> list[TemplateView]:
        """Return all templates, sorted by name."""
        return [TemplateView.model_validate(item) for item in self.session.get("/templates")]

    def template(self, name: str) -> TemplateView:
        """Return one template."""
        return TemplateView.model_validate(self.session.get(_template_path(name)))

    def set_template(self, name: str, config: Mapping[str, Any]) -> TemplateView:
        """Keep a template, instead of what had its name."""
        body = ask_for(SetTemplate, config=config).model_dump(mode="json")
        return TemplateView.model_validate(self.session.put(_template_path(name), body))

    def delete_template(self, name: str) -> TemplateView:
        """Forget a template; return it as it was."""
        return TemplateView.model_validate(self.session.delete(_template_path(name)))

    def feed(self, experiment_id: int, *, after: int) -> Generator[FeedItem | None, None, None]:
        """Yield what happens to an experiment, from number `after` on; None is a heartbeat."""
        with closing(
            self.session.stream("/feed", after=after, experiment_id=experiment_id, follow="true")
        ) as lines:
            for line in lines:
                yield None if line is None else FeedItem.model_validate(line)


def _template_path(name: str) -> str:
    # Dots too: httpx would take a name of dots for a step up.
    return f"/templates/{quote(name, safe='').replace('.', '%2E')}"
