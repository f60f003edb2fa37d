"""What a search method may ask for. Trials are named by their index within the experiment."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Create:
    """Make the trial with this index."""

    index: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Let the trial end: it has trained enough to be judged."""

    index: int


@dataclass(frozen=True, slots=True)
class Shutdown:
    """No more trials will come."""


Action = Create | Stop | Shutdown


class ExitReason(StrEnum):
    """How a trial ended."""

    COMPLETED = "completed"
    STOPPED = "stopped"  # its own code asked to
    INVALID_HP = "invalid_hp"
    ERRORED = "errored"
