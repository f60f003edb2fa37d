"""The contract between `Search` and the search methods, and the actions that a search requests.

A method decides which trials are created (through `Trials`) and how far they train. `Search`
handles hyperparameters, seeds and the sign of the metric. It passes metrics as floats: smaller is
better, and infinity stands for a missing metric or NaN. Trials are identified by their index in
the experiment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from det_jupyter.contract.messages import BracketView, SearchChange
from det_jupyter.contract.values.lengths import Length
from det_jupyter.errors import Problem


@dataclass(frozen=True, slots=True)
class Create:
    """Create the trial with this index; indices count up from 0 without a gap."""

    index: int
    hparams: dict[str, Any]
    seed: int


@dataclass(frozen=True, slots=True)
class TrainTo:
    """Let a trial train up to `length`, counted from its beginning, and validate there.

    A trial that has reached its last `TrainTo` rests until there is another one, or a `Close`.
    """

    index: int  # the trial
    length: Length  # counted from the trial's beginning
    # Whether the trial is closed at `length`, whatever its metric, without waiting for a decision.
    is_last: bool


@dataclass(frozen=True, slots=True)
class Close:
    """End the trial: the search needs no more training of it."""

    index: int


@dataclass(frozen=True, slots=True)
class Shutdown:
    """The search is over: every trial has exited, and no more will come."""


@dataclass(frozen=True, slots=True)
class AskSampler:
    """Request hyperparameters from the sampler; `Search.on_sampled` takes the answer."""

    index: int


@dataclass(frozen=True, slots=True)
class AskPruner:
    """Have the pruner judge a trial by its validations so far.

    `Search.on_judged` takes the answer.
    """

    index: int


Action = Create | TrainTo | Close | Shutdown | AskSampler | AskPruner


class ExitReason(StrEnum):
    """How a trial ended."""

    COMPLETED = "completed"  # reached its last target, or was closed
    STOPPED = "stopped"  # the trial's code requested its end
    CANCELED = "canceled"  # a user ended this trial
    INVALID_HP = "invalid_hp"
    ERRORED = "errored"


class SearchMethod(Protocol):
    """Decides which trials there are, and how long each trains.

    Pure: no clock, no I/O, no randomness of its own. For a trial that is not open any more
    (`Trials.is_open`) only `on_exited` is called. `Search` decides when the search is over.
    """

    @property
    def max_trials(self) -> int:
        """The number of trials of the whole search, without those with invalid hyperparameters."""

    @property
    def progress(self) -> float:
        """The progress of the search, 0 to 1."""

    def start(self) -> list[Action]:
        """Return the first actions; called once."""

    def on_target_reached(self, index: int, metric: float) -> list[Action]:
        """Handle a trial that has trained to the length of its last `TrainTo`."""

    def on_report(self, index: int, time: float | None, metric: float) -> list[Action]:
        """Handle a validation; `time` is its `time_metric`, None if that was not reported."""

    def on_exited(self, index: int, reason: ExitReason) -> list[Action]:
        """Handle the exit of a trial; called once for each trial."""

    def find_problems(self, change: SearchChange) -> list[Problem]:
        """Return the problems with a change; `Search` checks its hyperparameters."""

    def change(self, change: SearchChange) -> list[Action]:
        """Apply a change for which `find_problems` has returned no problem."""

    def brackets(self) -> list[BracketView]:
        """Return the state of the method's brackets; empty if it has none."""

    def rung_metrics(self, index: int) -> list[float]:
        """Return the trial's metric at each rung that it has reached, lowest rung first."""

    def snapshot(self) -> dict[str, Any]:
        """Return the state as JSON-ready data, without what `Trials` stores."""

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Restore what `snapshot` returned; called instead of `start`."""


@runtime_checkable
class ConsultingMethod(Protocol):
    """The further methods of a search method that uses a sampler, or a pruner.

    A sampler chooses hyperparameters, on `Trials.ask`; a pruner judges trials, on `AskPruner`.
    """

    def on_created(self, index: int) -> list[Action]:
        """Handle the creation of a trial that `Trials.ask` has requested."""

    def on_judged(self, index: int, is_pruned: bool) -> list[Action]:
        """Handle the pruner's answer; an answer without a question changes nothing."""

    def unanswered(self) -> list[AskPruner]:
        """Return the questions to the pruner that have no answer yet."""
