"""A master that is a list of feed items, for the senders of trackers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from det_jupyter.contract.messages import (
    CheckpointView,
    Curve,
    ExperimentView,
    FeedItem,
    TrackerProgress,
    TrackerWork,
    TrialView,
)
from det_jupyter.contract.messages.curves import Curves
from det_jupyter.trackers.contents import RunFacts, facts_of
from det_jupyter.trackers.service import MasterFeed
from tests.unit.view.view_samples import experiment, trial


class Killed(BaseException):
    """The process ends here."""


class Recorded(MasterFeed):
    """A master in which experiment 7 has reported; `kill_at` positions end the process."""

    def __init__(self, items: list[FeedItem], *, page: int = 5) -> None:
        self.items = items
        self.page = page
        self.seq = 0
        self.remark = ""
        self.asked: list[int] = []  # after which items pages were asked for
        self.runs: dict[int, dict[str, Any]] = {}
        self.kills: set[int] = set()
        self.trial: TrialView = trial()
        self.labels: list[str] = []

    def pages(self, experiment_id: int, after: int) -> Iterator[list[FeedItem]]:
        self.asked.append(after)
        left = [item for item in self.items if item.seq > after]
        for first in range(0, len(left), self.page):
            yield left[first : first + self.page]

    def experiment(self, experiment_id: int) -> ExperimentView:
        config = {**experiment().config, "labels": self.labels}
        return experiment(self.trial, config=config)

    def facts(self, experiment_id: int, trial_id: int) -> RunFacts:
        none: list[CheckpointView] = []
        one = self.trial.model_copy(update={"id": trial_id})
        return facts_of(self.experiment(experiment_id), one, none, computer="here")

    def curves(self, experiment_id: int) -> list[Curve]:
        curves = Curves()
        for item in self.items:
            if item.kind == "metrics" and item.trial_id is not None:
                curves.add(item.trial_id, item.data)
        return list(curves.values())

    def code(self, experiment_id: int) -> dict[str, str]:
        return {"Cell In[5]": "print()\n"}

    def advance(self, work: TrackerWork, after: int, progress: TrackerProgress) -> None:
        assert progress.seq is not None
        assert after == self.seq
        if progress.seq in self.kills:
            self.kills.remove(progress.seq)
            raise Killed
        self.seq = progress.seq
        self.remark = progress.remark
        self.runs.update(progress.runs)

    @property
    def open_work(self) -> TrackerWork:
        return TrackerWork(id=1, experiment_id=7, key="k", seq=self.seq, runs=self.runs)


def losses(first_seq: int, steps: range, trial_id: int = 1) -> list[FeedItem]:
    return [
        FeedItem(
            seq=first_seq + place,
            at=1.0,
            kind="metrics",
            experiment_id=7,
            trial_id=trial_id,
            data={
                "kind": "metrics",
                "at": float(step),
                "group": "training",
                "steps_completed": step,
                "metrics": {"loss": 1 / step, "top 5%": "NaN"},
            },
        )
        for place, step in enumerate(steps)
    ]
