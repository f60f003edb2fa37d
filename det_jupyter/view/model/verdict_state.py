"""The JSON of a verdict: what limits a trial's speed, and the shares of its time."""

from __future__ import annotations

from typing import TypedDict

from det_jupyter.contract.messages.verdicts import VerdictKind
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


# Other verdicts have "warn", as the training could be faster.
_TONES: dict[VerdictKind, Tone] = {"healthy": "good", "compute": "text", "unknown": "text"}


def verdict_tone(kind: VerdictKind) -> Tone:
    """Return the tone of a verdict: "warn" only if the training could be faster."""
    return _TONES.get(kind, "warn")


class TimeShare(TypedDict):
    """The share of the time that was spent in one way, from 0 to 1; `word` is its label."""

    kind: VerdictKind
    word: str
    share: float


class CauseLine(TypedDict):
    """One cause of a verdict; `rank` is None if it concerns all ranks."""

    kind: VerdictKind
    word: str
    share: float
    rank: int | None
    evidence: list[str]
    advice: list[str]


class VerdictState(TypedDict):
    """The limit of a trial's speed: a sentence, causes with evidence, and shares of the time.

    The verdict is named after the first of `causes`. `shares` are in the order of VERDICT_WORDS,
    without those too small to be seen. `network` describes the exchange of a trial on several
    computers; else "".
    """

    kind: VerdictKind
    word: str
    tone: Tone
    sentence: str
    causes: list[CauseLine]
    shares: list[TimeShare]
    network: str
    at: float
    batches: int
