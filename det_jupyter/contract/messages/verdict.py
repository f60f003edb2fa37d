"""Where a trial's time goes, and what to try about it."""

from __future__ import annotations

from typing import Literal

from det_jupyter.contract.messages.states import Wire
from det_jupyter.contract.values.bounds import Fraction, Moment, Rank

CauseKind = Literal[
    "compute", "input", "transfer", "communication", "checkpoint", "validation", "straggler",
    "uneven", "memory", "residual",
]  # fmt: skip
VerdictKind = Literal[CauseKind, "healthy", "unknown"]


class Cause(Wire):
    """Something that takes a trial's time."""

    kind: CauseKind
    share: Fraction  # of the time; of memory that grows: 0
    rank: Rank | None = None  # whose it is, where it is one rank's
    # Of a straggler: what makes it slow.
    because: Literal["data", "compute", "machine"] | None = None
    evidence: list[str] = []  # the numbers that say so, in sentences
    advice: list[str] = []  # what to try, in sentences, the most promising first


class Verdict(Wire):
    """What limits a trial, in one sentence."""

    # Of the first cause; `healthy`: nothing to gain; `unknown`: not enough seen yet.
    kind: VerdictKind
    sentence: str  # all of it, for people, with share, rank, and the next thing to try
    # Those that are worth a word, the one that names the verdict first. Two or more: they mix.
    causes: list[Cause] = []
    shares: dict[CauseKind, Fraction] = {}  # of all the time, by what took it; they sum to 1
    at: Moment  # when it was found
    batches: int  # how many batches it is based on
