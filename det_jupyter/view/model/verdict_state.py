"""The JSON that a verdict is drawn from: what limits a trial, and where its time goes."""

from __future__ import annotations

from typing import TypedDict

from det_jupyter.contract.messages.views import VerdictKind
from det_jupyter.view.model.status_looks import Tone

VERDICT_WORDS: dict[VerdictKind, str] = {  # in the order in which shares are drawn
    "compute": "compute",
    "input": "waiting for data",
    "transfer": "moving data to the device",
    "communication": "communication",
    "straggler": "waiting for a slow rank",
    "uneven": "uneven steps",
    "checkpoint": "checkpoints",
    "validation": "validation",
    "residual": "the rest",
    "memory": "memory that grows",
    "healthy": "nothing to gain",
    "unknown": "no verdict",
}


# Others say that time is lost.
_TONES: dict[VerdictKind, Tone] = {"healthy": "good", "compute": "text", "unknown": "text"}


def verdict_tone(kind: VerdictKind) -> Tone:
    """Return how a verdict looks: as an alarm only where there is something to gain."""
    return _TONES.get(kind, "warn")


class TimeShare(TypedDict):
    """How much of the time something took, from 0 to 1; `word` is for people."""

    kind: VerdictKind
    word: str
    share: float


class Cause(TypedDict):
    """One cause of a verdict; `rank` is None where it is not one rank's."""

    kind: VerdictKind
    word: str
    share: float
    rank: int | None
    evidence: list[str]
    advice: list[str]


class Verdict(TypedDict):
    """What limits a trial: a sentence, what it is based on, and how the time is divided.

    `causes` has the one that names the verdict first. `shares` sum to 1, in the order of
    VERDICT_WORDS.
    """

    kind: VerdictKind
    word: str
    tone: Tone
    sentence: str
    causes: list[Cause]
    shares: list[TimeShare]
    at: float
    batches: int
