"""A shell whose master is a fake."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.contract.messages import (
    LIFE,
    AgentCredentials,
    ChangeRequest,
    CheckpointView,
    Curve,
    ExperimentQuery,
    ExperimentRows,
    ExperimentView,
    LogLine,
    LogPage,
    LogQuery,
    OfExperiment,
    TemplateView,
    TrialView,
)
from det_jupyter.errors import NotFound
from det_jupyter.front.cli import connecting
from det_jupyter.front.cli.__main__ import main
from tests.unit.front.verbs.finding_samples import rows_found
from tests.unit.front.verbs.recording_client import noted
from tests.unit.view.view_samples import CREATED_AT, checkpoint, experiment, trial

LOSS = Curve(
    trial_id=1, group="training", name="loss", steps=[10, 20], values=[2.0, 1.0],
    times=[CREATED_AT, CREATED_AT + 1],
)  # fmt: skip
ERROR = Curve(
    trial_id=1, group="validation", name="error", steps=[20], values=[0.4],
    times=[CREATED_AT + 2],
)  # fmt: skip


class Master:
    """Answers as the master does, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.view = experiment(trial(), pool="default")
        self.asked: list[Any] = []
        self.lines = [
            LogLine(
                id=i, at=CREATED_AT + i, trial_id=1, run=1 + i // 3, rank=i % 2, text=f"line {i}"
            )
            for i in range(1, 6)
        ]
        self.session = SimpleNamespace(info=SimpleNamespace(data_dir="data"))

    def find(self, query: ExperimentQuery) -> ExperimentRows:
        self.asked.append(query)
        return rows_found(8, 7, parent_id=3, pool="night")

    def experiment(self, experiment_id: int) -> ExperimentView:
        if experiment_id >= 90:
            raise NotFound(
                f"there is no experiment {experiment_id}", what="experiment", number=experiment_id
            )
        return self.view.model_copy(update={"id": experiment_id})

    def trial(self, trial_id: int) -> TrialView:
        return self.view.trials[0]

    def curves(self, experiment_id: int) -> list[Curve]:
        return [LOSS, ERROR]

    def checkpoints(self, experiment_id: int) -> list[CheckpointView]:
        return [checkpoint(10, 0.5), checkpoint(20, 0.4), checkpoint(30, None)]

    def change(self, request: ChangeRequest) -> ExperimentView:
        self.asked.append(noted(request))
        if isinstance(request, OfExperiment) and type(request) in LIFE.values():
            return self.experiment(request.experiment_id)
        return self.view

    def experiment_logs(
        self, experiment_id: int, query: LogQuery, *, trial_id: int | None = None
    ) -> LogPage:
        return self.logs(1, query)

    def logs(self, trial_id: int, query: LogQuery) -> LogPage:
        lines = [line for line in self.lines if line.id > query.after]
        lines = lines if query.tail is None else lines[-query.tail :]
        last = lines[-1].id if lines else query.after
        return LogPage(lines=lines, total=len(lines), last_id=last, is_over=True)

    def add_agent(self, agent_id: str, address: str = "") -> AgentCredentials:
        url = f"https://{address or '192.0.2.7'}:4000"
        return AgentCredentials(
            agent=agent_id, url=url, certificate="PEM", token=f"secret of {agent_id}"
        )

    def remove_agent(self, agent_id: str) -> None:
        if agent_id == "unknown":
            raise NotFound(f"no agent {agent_id} was added")

    def templates(self) -> list[TemplateView]:
        config = {"resources": {"slots_per_trial": 2}}
        return [TemplateView(name="digits", config=config, created_at=1.0, updated_at=2.0)]


@dataclass
class Shell:
    """What a line did."""

    status: int
    out: str
    err: str


class Typed:
    """Types lines."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str) -> Shell:
        """Return what `det` does with these words; of one text, with the words in it."""
        status = main(words[0].split() if len(words) == 1 else words)
        captured = self._capsys.readouterr()
        return Shell(status, captured.out, captured.err)


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> Master:
    """Return the fake, which all lines ask."""
    fake = Master()
    monkeypatch.setattr(connecting, "LazyClient", lambda connect, watching=None: fake)
    monkeypatch.delenv("DET_MASTER", raising=False)
    return fake


@pytest.fixture
def det(master: Master, capsys: pytest.CaptureFixture[str]) -> Typed:
    """Return what types lines."""
    return Typed(capsys)
