"""Simulated trials for a search, with checks of the contract of its actions."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from det_jupyter.config import ExperimentConfig, parse_config
from det_jupyter.contract.messages import SearchChange
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

SPACE = {"lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1}, "global_batch_size": 64}
METRICS: list[float | None] = [0.0, 0.1, 0.2, 0.25, 0.5, 0.5, -1.5, 3, math.nan, math.inf, None]


def make_config(
    hyperparameters: dict[str, Any] | None = None, *, seed: int = 0, **searcher: Any
) -> ExperimentConfig:
    """Return a configuration with this searcher."""
    return parse_config(
        {
            "entrypoint": "SomeTrial",
            "hyperparameters": SPACE if hyperparameters is None else hyperparameters,
            "searcher": {"metric": "error"} | searcher,
            "reproducibility": {"experiment_seed": seed},
        }
    )


def make_search(config: ExperimentConfig, snapshot: Mapping[str, Any] | None = None) -> Search:
    """Return the search of a configuration."""
    seed = config.reproducibility.experiment_seed
    return Search(config.searcher, config.hyperparameters, seed, snapshot)


class World:
    """The trials of one search, and the actions that the search took about them."""

    def __init__(self, config: ExperimentConfig, *, restarts: bool = False) -> None:
        self.config = config
        self.restarts = restarts  # the search is made anew before every event
        self.search = make_search(config)
        self.created: list[Create] = []
        self.targets: dict[int, TrainTo] = {}  # of trials that train
        self.trained: dict[int, int] = {}
        self.closed: list[int] = []  # by the search
        self.over: set[int] = set()
        self.asked: list[AskSampler | AskPruner] = []
        self.is_shut = False
        self.full = config.searcher.max_length
        self.log: list[Action] = []
        assert self.search.progress == 0
        self.take(self.search.start())

    def take(self, actions: list[Action]) -> list[Action]:
        """Carry out actions of the search, and check that each is allowed."""
        for action in actions:
            assert not self.is_shut, f"{action} after the end"
            match action:
                case Create(index):
                    assert index == len(self.created)
                    self.created.append(action)
                    self.trained[index] = 0
                case TrainTo(index):
                    assert index < len(self.created), action
                    assert index not in {*self.over, *self.closed}, action
                    self.targets[index] = action
                case Close(index):
                    assert index not in {*self.over, *self.closed}, action
                    self.closed.append(index)
                    self.targets.pop(index, None)
                case AskSampler() | AskPruner():
                    self.asked.append(action)
                case Shutdown():
                    assert len(self.over) == len(self.created)
                    self.is_shut = True
        self.log += actions
        return actions

    def tell(self, call: Callable[[Search], list[Action]]) -> list[Action]:
        """Pass an event to the search."""
        if self.restarts:
            snapshot = json.loads(json.dumps(self.search.snapshot(), allow_nan=False))
            self.search = make_search(self.config, snapshot)
        before = self.search.progress
        actions = self.take(call(self.search))
        assert before <= self.search.progress <= 1
        assert (self.search.progress == 1) >= self.is_shut
        return actions

    def reach(self, index: int, metric: float | None) -> list[Action]:
        """A trial reaches its target."""
        target = self.targets.pop(index)
        self.trained[index] = max(self.trained[index], target.length.amount)
        return self.tell(lambda search: search.on_target_reached(index, metric))

    def report(self, index: int, time: float | None, metric: float | None) -> list[Action]:
        """A trial validates."""
        if time is not None and math.isfinite(time):
            self.trained[index] = max(self.trained[index], int(time))
        return self.tell(lambda search: search.on_report(index, time, metric))

    def exit(self, index: int, reason: ExitReason = ExitReason.COMPLETED) -> list[Action]:
        """A trial is over."""
        self.targets.pop(index, None)
        self.over.add(index)
        return self.tell(lambda search: search.on_exited(index, reason))

    def change(self, **changes: Any) -> list[Action]:
        """The search is given other limits."""
        actions = self.tell(lambda search: search.change(SearchChange(**changes)))
        self.full = changes.get("max_length", self.full)
        return actions

    def end_closed(self) -> None:
        """Let all closed trials exit."""
        for index in [index for index in self.closed if index not in self.over]:
            self.exit(index)

    def run(self, metric_of: Callable[[int], float | None]) -> dict[int, int]:
        """Let all trials train, one target at a time in turn; return how far each came."""
        while not self.is_shut:
            assert self.targets, "nobody trains, and the search waits"
            index = next(iter(self.targets))
            self.reach(index, metric_of(index))
            self.end_closed()
        return self.trained
