"""Where a trial's time goes, and what to try about it."""

from __future__ import annotations

from typing import Literal

from det_jupyter.bounds import Fraction, Moment, Rank
from det_jupyter.wire.states import Wire

CauseKind = Literal[
    "compute", "input", "transfer", "communication", "checkpoint", "validation", "straggler",
    "uneven", "memory", "residual",
]  # fmt: skip
VerdictKind = Literal[CauseKind, "healthy", "unknown"]


class Cause(Wire):
    """Something that takes a trial's time.

    Args:
        share: Of the time; of memory that grows: 0.
        rank: Whose it is, where it is one rank's.
        because: Of a straggler: what makes it slow.
        evidence: The numbers that say so, in sentences.
        advice: What to try, in sentences, the most promising first.
    """

    kind: CauseKind
    share: Fraction
    rank: Rank | None = None
    because: Literal["data", "compute", "machine"] | None = None
    evidence: list[str] = []
    advice: list[str] = []


class Verdict(Wire):
    """What limits a trial, in one sentence.

    Args:
        kind: Of the first cause; `healthy`: nothing to gain; `unknown`: not enough seen yet.
        sentence: All of it, for people, with share, rank, and the next thing to try.
        causes: Those that are worth a word, the one that names the verdict first. Two or more:
            they mix.
        shares: Of all the time, by what took it; they sum to 1.
        at: When it was found.
        batches: How many batches it is based on.
    """

    kind: VerdictKind
    sentence: str
    causes: list[Cause] = []
    shares: dict[CauseKind, Fraction] = {}
    at: Moment
    batches: int
