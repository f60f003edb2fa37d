"""`single`, `random` and `grid`: every trial trains to its full length, whatever its metric is.

A new trial is made when one is over, so that no more than `max_concurrent_trials` are there at a
time. A random trial whose hyperparameters are invalid is replaced; a single one would be drawn for
nothing, since a user wants to see why it cannot work, and a point of a grid has no replacement.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from det_jupyter.config.searchers import GridSearcher, RandomSearcher, SingleSearcher
from det_jupyter.errors import Problem
from det_jupyter.lengths import parse_length
from det_jupyter.searcher.change import SearchChange, find_shorter
from det_jupyter.searcher.grid import Grid
from det_jupyter.searcher.method import Action, Close, ExitReason, TrainTo
from det_jupyter.searcher.trials import CLOSED, EXITED, TRAINING, Trials
from det_jupyter.wire import BracketView


class FullLength:
    """Makes trials one after another."""

    def __init__(
        self, searcher: SingleSearcher | RandomSearcher | GridSearcher, trials: Trials
    ) -> None:
        self._trials = trials
        self._replaces_invalid = isinstance(searcher, RandomSearcher)
        self._max_length = searcher.max_length
        self._grid = Grid(trials.hyperparameters) if isinstance(searcher, GridSearcher) else None
        self.max_trials = 1
        self._max_concurrent_trials = 1
        if isinstance(searcher, RandomSearcher):
            self.max_trials = searcher.max_trials
        if self._grid is not None:
            self.max_trials = len(self._grid)
        if not isinstance(searcher, SingleSearcher):
            self._max_concurrent_trials = searcher.max_concurrent_trials

    @property
    def progress(self) -> float:
        """The share of trials that are over."""
        return self._trials.share_over(self.max_trials)

    def start(self) -> list[Action]:
        """Make as many trials as may be there at a time."""
        actions: list[Action] = []
        while self._trials.has_room(self.max_trials, self._max_concurrent_trials):
            # Determined takes a grid's points from the end of their list.
            place = self.max_trials - 1 - self._trials.num_created
            create = self._trials.create(
                hparams=None if self._grid is None else self._grid.point(place)
            )
            actions += [create, self._train_to(create.index)]
        return actions

    def _train_to(self, index: int) -> TrainTo:
        return TrainTo(index, self._max_length, is_last=True)

    def on_target_reached(self, index: int, metric: float) -> list[Action]:
        """Close the trial."""
        self._trials.status[index] = CLOSED
        return [Close(index)]

    def on_report(self, index: int, time: float | None, metric: float) -> list[Action]:
        """Let the trial go on, however it does."""
        return []

    def on_exited(self, index: int, reason: ExitReason) -> list[Action]:
        """Make another trial, if there are any to come."""
        if self._trials.is_open(index):
            is_invalid = reason is ExitReason.INVALID_HP and self._replaces_invalid
            if not (is_invalid and self._trials.replace(index, self.max_trials)):
                self._trials.status[index] = EXITED
        return self.start()

    def find_problems(self, change: SearchChange) -> list[Problem]:
        """Return why the change cannot be made."""
        return find_shorter(change.max_length, self._max_length.unit, self._max_length.amount)

    def change(self, change: SearchChange) -> list[Action]:
        """Make room for more trials; let those that still train go farther."""
        actions: list[Action] = []
        if change.max_trials is not None:
            self.max_trials = change.max_trials
        if change.max_concurrent_trials is not None:
            self._max_concurrent_trials = change.max_concurrent_trials
        if change.max_length is not None and change.max_length != self._max_length:
            self._max_length = change.max_length
            training = (i for i, status in enumerate(self._trials.status) if status == TRAINING)
            actions += [self._train_to(index) for index in training]
        return actions + self.start()

    def brackets(self) -> list[BracketView]:
        """Return nothing: trials are not compared while they train."""
        return []

    def rung_metrics(self, index: int) -> list[float]:
        """Return nothing: there are no rungs."""
        return []

    def snapshot(self) -> dict[str, Any]:
        """Return the limits, which may have been changed."""
        return {
            "max_trials": self.max_trials,
            "max_concurrent_trials": self._max_concurrent_trials,
            "max_length": self._max_length.to_document(),
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go back to where `snapshot` was taken."""
        self.max_trials = snapshot["max_trials"]
        self._max_concurrent_trials = snapshot["max_concurrent_trials"]
        self._max_length = parse_length(snapshot["max_length"])
