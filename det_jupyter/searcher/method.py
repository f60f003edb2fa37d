"""The contract between `Search` and the search methods.

A method tells which trials to make (through `Trials`) and how far they train. It knows nothing of
hyperparameters, signs and seeds: metrics come as floats of which the smaller is the better, and
infinity is the worst, whatever was reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from det_jupyter.searcher.actions import Action, AskPruner, ExitReason
from det_jupyter.searcher.change import SearchChange
from det_jupyter.wire import BracketView


class SearchMethod(Protocol):
    """Decides which trials there are, and how long each trains.

    Pure: no clock, no I/O, no randomness of its own. Of a trial that is not open any more
    (`Trials.is_open`) it hears only that it is over. `Search` says when all is.
    """

    @property
    def max_trials(self) -> int:
        """How many trials there will be, those with invalid hyperparameters not counted."""

    @property
    def progress(self) -> float:
        """How much of the search is done: 0 to 1."""

    def start(self) -> list[Action]:
        """Return what to do first; called once."""

    def on_target_reached(self, index: int, metric: float) -> list[Action]:
        """A trial has trained as far as its last `TrainTo` said."""

    def on_report(self, index: int, time: float | None, metric: float) -> list[Action]:
        """A trial has validated; `time` is its `time_metric`, None if that was not reported."""

    def on_exited(self, index: int, reason: ExitReason) -> list[Action]:
        """A trial is over; called once for each."""

    def find_problems(self, change: SearchChange) -> list[str]:
        """Return why the change cannot be made, but for the hyperparameters: one line each."""

    def change(self, change: SearchChange) -> list[Action]:
        """Make a change in which `find_problems` found none."""

    def brackets(self) -> list[BracketView]:
        """Return how its brackets stand; empty if it has none."""

    def rung_metrics(self, index: int) -> list[float]:
        """Return the trial's metric at each rung that it has reached, lowest rung first."""

    def snapshot(self) -> dict[str, Any]:
        """Return the state as JSON-ready data, but for what `Trials` holds."""

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go back to where `snapshot` was taken; called instead of `start`."""


@runtime_checkable
class ConsultingMethod(Protocol):
    """What a method has besides, if others choose hyperparameters or judge trials for it.

    It asks with `Trials.ask` (for a new trial) and with `AskPruner`.
    """

    def on_created(self, index: int) -> list[Action]:
        """A trial that was asked for has been made."""

    def on_judged(self, index: int, is_pruned: bool) -> list[Action]:
        """The pruner has answered; an answer that was not asked for changes nothing."""

    def unanswered(self) -> list[AskPruner]:
        """Return the questions to the pruner that are open."""
