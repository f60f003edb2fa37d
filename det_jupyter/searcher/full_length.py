"""`single` and `random`: every trial trains to its full length, independent of its metric.

A new trial is created when one is over, so that at most `max_concurrent_trials` exist at a time. A
random trial with invalid hyperparameters is replaced. The trial of `single` is not replaced, so
that its error is shown; a point of a grid is not either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

from det_jupyter.contract.messages import BracketView, SearchChange
from det_jupyter.contract.values.lengths import Length, parse_length
from det_jupyter.errors import Problem
from det_jupyter.searcher.change_checks import find_shorter
from det_jupyter.searcher.method import Action, Close, ExitReason, TrainTo
from det_jupyter.searcher.planning import BracketForecast, plan_full_length
from det_jupyter.searcher.searcher_section import OfLength, OfTrials
from det_jupyter.searcher.trials import CLOSED, EXITED, TRAINING, Trials


class SingleSearcher(OfLength):
    """One trial, trained to its full length."""

    is_search: ClassVar[bool] = False
    is_continuable: ClassVar[bool] = True
    name: Literal["single"]

    def make(self, trials: Trials) -> FullLength:
        """Return the search method."""
        return FullLength(trials, self.max_length)

    def plan(self, hyperparameters: Mapping[str, Any]) -> list[BracketForecast]:
        """Return the planned training."""
        return [plan_full_length(1, 1, self.max_length.amount)]


class RandomSearcher(OfTrials):
    """Trials with hyperparameters drawn at random, each trained to its full length."""

    is_continuable: ClassVar[bool] = True
    name: Literal["random"]

    def make(self, trials: Trials) -> FullLength:
        """Return the search method."""
        return FullLength(
            trials,
            self.max_length,
            max_trials=self.max_trials,
            max_concurrent_trials=self.max_concurrent_trials,
            replaces_invalid=True,
        )

    def plan(self, hyperparameters: Mapping[str, Any]) -> list[BracketForecast]:
        """Return the planned training."""
        full = self.max_length.amount
        return [plan_full_length(self.max_trials, self.max_concurrent_trials, full)]


class FullLength:
    """Creates trials one after another and trains each to its full length.

    Args:
        max_concurrent_trials: Most trials at a time; 0: no limit.
        replaces_invalid: Whether another trial takes the place of one with invalid
            hyperparameters.
        hparams_of: Returns the hyperparameters of a trial by its index; by default they are drawn.
    """

    def __init__(
        self,
        trials: Trials,
        max_length: Length,
        *,
        max_trials: int = 1,
        max_concurrent_trials: int = 1,
        replaces_invalid: bool = False,
        hparams_of: Callable[[int], dict[str, Any]] | None = None,
    ) -> None:
        self.max_trials = max_trials
        self._trials = trials
        self._max_length = max_length
        self._max_concurrent_trials = max_concurrent_trials
        self._replaces_invalid = replaces_invalid
        self._hparams_of = hparams_of

    @property
    def progress(self) -> float:
        """The share of trials that are over."""
        return self._trials.share_over(self.max_trials)

    def start(self) -> list[Action]:
        """Create as many trials as may train at a time."""
        actions: list[Action] = []
        while self._trials.has_room(self.max_trials, self._max_concurrent_trials):
            given = self._hparams_of and self._hparams_of(self._trials.num_created)
            create = self._trials.create(hparams=given)
            actions += [create, self._train_to(create.index)]
        return actions

    def _train_to(self, index: int) -> TrainTo:
        return TrainTo(index, self._max_length, is_last=True)

    def on_target_reached(self, index: int, metric: float) -> list[Action]:
        """Close the trial."""
        self._trials.status[index] = CLOSED
        return [Close(index)]

    def on_report(self, index: int, time: float | None, metric: float) -> list[Action]:
        """Return no actions: trials are not judged before their full length."""
        return []

    def on_exited(self, index: int, reason: ExitReason) -> list[Action]:
        """Create another trial, if there are any left."""
        if self._trials.is_open(index):
            is_invalid = reason is ExitReason.INVALID_HP and self._replaces_invalid
            if not (is_invalid and self._trials.replace(index, self.max_trials)):
                self._trials.status[index] = EXITED
        return self.start()

    def find_problems(self, change: SearchChange) -> list[Problem]:
        """Return the problems with a change."""
        return find_shorter(change.max_length, self._max_length.unit, self._max_length.amount)

    def change(self, change: SearchChange) -> list[Action]:
        """Apply the new limits; trials that still train get the new length."""
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
        """Return an empty list: trials are not compared while they train."""
        return []

    def rung_metrics(self, index: int) -> list[float]:
        """Return an empty list: there are no rungs."""
        return []

    def snapshot(self) -> dict[str, Any]:
        """Return the limits, which may have been changed."""
        return {
            "max_trials": self.max_trials,
            "max_concurrent_trials": self._max_concurrent_trials,
            "max_length": self._max_length.to_document(),
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Restore what `snapshot` returned."""
        self.max_trials = snapshot["max_trials"]
        self._max_concurrent_trials = snapshot["max_concurrent_trials"]
        self._max_length = parse_length(snapshot["max_length"])
