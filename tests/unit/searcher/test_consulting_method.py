"""Searches whose methods query a sampler and a pruner."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from det_jupyter.config import Length
from det_jupyter.contract.messages import BracketView, SearchChange
from det_jupyter.searcher import (
    Action,
    AskPruner,
    AskSampler,
    Close,
    Create,
    ExitReason,
    Search,
    Shutdown,
    TrainTo,
)
from det_jupyter.searcher.full_length import SingleSearcher
from det_jupyter.searcher.trials import CLOSED, EXITED, STOPPED, Trials
from tests.unit.searcher.searcher_world import make_config, make_search


class Asking:
    """Requests three trials at first and one more after each; queries the pruner every time."""

    max_trials = 4
    progress = 0.0

    def __init__(self, trials: Trials) -> None:
        self.trials = trials
        self.open: list[int] = []

    def start(self) -> list[Action]:
        return [self.trials.ask() for _ in range(3)]

    def on_created(self, index: int) -> list[Action]:
        return [TrainTo(index, Length("batches", 9), is_last=True)]

    def on_target_reached(self, index: int, metric: float) -> list[Action]:
        self.trials.status[index] = CLOSED
        return [Close(index)]

    def on_report(self, index: int, time: float | None, metric: float) -> list[Action]:
        self.open.append(index)
        return [AskPruner(index)]

    def on_judged(self, index: int, is_pruned: bool) -> list[Action]:
        self.open.remove(index)
        if not is_pruned:
            return []
        self.trials.status[index] = STOPPED
        return [Close(index)]

    def unanswered(self) -> list[AskPruner]:
        return [AskPruner(index) for index in self.open]

    def on_exited(self, index: int, reason: ExitReason) -> list[Action]:
        if self.trials.is_open(index):
            self.trials.status[index] = EXITED
        return [self.trials.ask()] if self.trials.num_requested < self.max_trials else []

    def find_problems(self, change: SearchChange) -> list[str]:
        return []

    def change(self, change: SearchChange) -> list[Action]:
        return []

    def brackets(self) -> list[BracketView]:
        return []

    def rung_metrics(self, index: int) -> list[float]:
        return []

    def snapshot(self) -> dict[str, Any]:
        return {"open": self.open}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        self.open = list(snapshot["open"])


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> Search:
    monkeypatch.setattr(SingleSearcher, "make", lambda _, trials: Asking(trials))
    return make_search(make_config({}, name="single", max_length=9))


def restarted(search: Search) -> Search:
    snapshot = json.loads(json.dumps(search.snapshot(), allow_nan=False))
    return make_search(make_config({}, name="single", max_length=9), snapshot)


def train(index: int, lr: float, seed: int) -> list[Action]:
    return [Create(index, {"lr": lr}, seed), TrainTo(index, Length("batches", 9), is_last=True)]


SEED = 441365315  # of the first trial of experiment seed 0 without hyperparameters


def test_a_trial_is_made_when_the_sampler_has_answered(search: Search) -> None:
    assert search.start() == [AskSampler(0), AskSampler(1), AskSampler(2)]
    assert search.view().num_created == 0
    (create, target) = search.on_sampled(0, {"lr": 0.1})
    assert [create, target] == train(0, 0.1, SEED)
    assert search.view().num_created == 1


def test_answers_out_of_turn_wait_for_those_before_them(search: Search) -> None:
    search.start()
    assert search.on_sampled(2, {"lr": 0.3}) == []
    search = restarted(search)
    assert search.on_sampled(1, {"lr": 0.2}) == []
    assert search.pending() == [AskSampler(0)]
    made = search.on_sampled(0, {"lr": 0.1})
    assert [action.index for action in made if isinstance(action, Create)] == [0, 1, 2]
    assert search.pending() == []


def test_an_answer_that_nobody_waits_for_changes_nothing(search: Search) -> None:
    search.start()
    search.on_sampled(0, {"lr": 0.1})
    before = search.snapshot()
    assert search.on_sampled(0, {"lr": 0.9}) == []
    assert search.on_sampled(3, {"lr": 0.9}) == []
    assert search.snapshot() == before


def test_questions_that_are_open_are_known_after_a_restart(search: Search) -> None:
    search.start()
    search.on_sampled(0, {"lr": 0.1})
    assert search.on_report(0, None, 0.5) == [AskPruner(0)]
    assert restarted(search).pending() == [AskSampler(1), AskSampler(2), AskPruner(0)]


def test_a_pruned_trial_is_closed(search: Search) -> None:
    search.start()
    search.on_sampled(0, {"lr": 0.1})
    search.on_report(0, None, 0.5)
    assert search.on_judged(0, True) == [Close(0)]
    assert search.was_stopped(0)
    assert search.on_judged(0, True) == []


def test_it_is_over_when_the_trials_that_were_asked_for_are(search: Search) -> None:
    search.start()
    for index in range(3):
        search.on_sampled(index, {"lr": 0.1})
    assert search.on_exited(0, ExitReason.ERRORED) == [AskSampler(3)]
    assert search.on_exited(1, ExitReason.ERRORED) == []
    assert search.on_exited(2, ExitReason.ERRORED) == []
    assert search.progress == 0
    search.on_sampled(3, {"lr": 0.1})
    search.on_target_reached(3, 0.5)
    assert search.on_exited(3, ExitReason.COMPLETED) == [Shutdown()]
    assert search.progress == 1
