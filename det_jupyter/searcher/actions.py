"""What a search may ask for. Trials are named by their index within the experiment."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from det_jupyter.config import Length


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
    is_last: bool  # it will be closed there, however it does: it need not wait for the decision


@dataclass(frozen=True, slots=True)
class Close:
    """Let the trial end: it has trained enough to be judged."""

    index: int


@dataclass(frozen=True, slots=True)
class Shutdown:
    """No more trials will come; the last one is over or was told to end."""


@dataclass(frozen=True, slots=True)
class AskSampler:
    """Have the sampler choose hyperparameters; `Search.on_sampled` takes the answer."""

    index: int


@dataclass(frozen=True, slots=True)
class AskPruner:
    """Have the pruner judge a trial as it is after its last validation: `Search.on_judged`."""

    index: int


Action = Create | TrainTo | Close | Shutdown | AskSampler | AskPruner


class ExitReason(StrEnum):
    """How a trial ended."""

    COMPLETED = "completed"  # trained as far as it was told, or was closed
    STOPPED = "stopped"  # its own code asked to
    CANCELED = "canceled"  # a user ended this trial
    INVALID_HP = "invalid_hp"
    ERRORED = "errored"
