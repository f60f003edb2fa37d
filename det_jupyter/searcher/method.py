"""The contract between `Search` and the search methods, and what a search may ask for.

A method decides which trials are made (through `Trials`) and how far they train. Hyperparameters,
seeds and the sign of the metric are left to `Search`, which passes metrics as floats: smaller is
better, and infinity stands for what is no number. Trials are named by their index in the
experiment.
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
    """Make the trial with this index; indices count up from 0 without a gap."""

    index: int
    hparams: dict[str, Any]
    seed: int


@dataclass(frozen=True, slots=True)
class TrainTo:
    """Let a trial train until it has trained `length` since its beginning, and validate there.

    A trial that has reached its last `TrainTo` rests until there is another one, or a `Close`.
    """

    index: int  # the trial
    length: Length  # counted from the trial's beginning
    is_last: bool  # the trial is closed there whatever its metric, without waiting for a decision


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

    def find_problems(self, change: SearchChange) -> list[Problem]:
        """Return the problems with a change, except with hyperparameters (`Search` has those)."""

    def change(self, change: SearchChange) -> list[Action]:
        """Carry out a change with which `find_problems` found no problem."""

    def brackets(self) -> list[BracketView]:
        """Return the state of its brackets; empty if it has none."""

    def rung_metrics(self, index: int) -> list[float]:
        """Return the trial's metric at each rung that it has reached, lowest rung first."""

    def snapshot(self) -> dict[str, Any]:
        """Return the state as JSON-ready data, without what `Trials` stores."""

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Restore what `snapshot` returned; called instead of `start`."""


@runtime_checkable
class ConsultingMethod(Protocol):
    """What a method has besides if a sampler chooses hyperparameters, or a pruner judges trials.

    It queries them by `Trials.ask` (for a new trial) and `AskPruner`.
    """

    def on_created(self, index: int) -> list[Action]:
        """A trial that was requested by `Trials.ask` has been made."""

    def on_judged(self, index: int, is_pruned: bool) -> list[Action]:
        """The pruner has answered; an answer without a question changes nothing."""

    def unanswered(self) -> list[AskPruner]:
        """Return the questions to the pruner that are open."""
