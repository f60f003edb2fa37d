"""Verdicts: what limits the speed of a trial, with causes, evidence and advice."""

from __future__ import annotations

from typing import Literal

from det_jupyter.contract.messages.wire import Wire
from det_jupyter.contract.values.bounds import Fraction, Rank, Timestamp
from det_jupyter.contract.values.text import brief, listed, size

CauseKind = Literal[
    "compute", "input", "transfer", "communication", "checkpoint", "validation", "straggler",
    "uneven", "memory", "residual",
]  # fmt: skip
_MOST_COMPUTERS = 3  # named in a sentence
VerdictKind = Literal[CauseKind, "healthy", "unknown"]


class Cause(Wire):
    """A reason why a trial is slow."""

    kind: CauseKind
    share: Fraction  # share of the time; 0 for memory that grows
    rank: Rank | None = None  # the rank, if the cause concerns only one
    # Of a straggler: what makes it slow.
    because: Literal["data", "compute", "machine"] | None = None
    evidence: list[str] = []  # sentences with the measured numbers
    advice: list[str] = []  # sentences with what to try, the most promising first


class ComputerNetwork(Wire):
    """What one computer of a trial sends and receives over its network, for each batch.

    All traffic of the interface counts, including that of other programs.
    """

    agent: str
    interface: str  # such as "eth0"; several with commas
    sent_bytes: float | None = None  # None: not sampled
    received_bytes: float | None = None


class NetworkUse(Wire):
    """The exchange per batch between the computers of a trial."""

    seconds: float  # time of exchanges between ranks, without waiting for a slow rank
    batch_s: float  # the time of a batch
    computers: list[ComputerNetwork]

    @property
    def sentence(self) -> str:
        """The exchange in words, without a full stop."""
        each = listed(map(_network_words, self.computers), most=_MOST_COMPUTERS)
        return (
            f"exchanges between {len(self.computers)} computers take {brief(self.seconds)} of "
            f"{brief(self.batch_s)} a batch; {each}"
        )


def _network_words(one: ComputerNetwork) -> str:
    if one.sent_bytes is None or one.received_bytes is None:
        return f"{one.agent} uses {one.interface}"
    rates = f"{size(one.sent_bytes)} sent, {size(one.received_bytes)} received"
    return f"{one.agent} uses {one.interface} ({rates})"


class Verdict(Wire):
    """What limits a trial, in one sentence."""

    # Of the first cause; `healthy`: nothing to gain; `unknown`: not enough measured yet.
    kind: VerdictKind
    sentence: str  # the verdict with share, rank and first advice
    causes: list[Cause] = []  # the important causes; `kind` is that of the first one
    shares: dict[CauseKind, Fraction] = {}  # how all the time is divided; they sum to 1
    at: Timestamp  # when it was found
    batches: int  # how many batches it is based on
    network: NetworkUse | None = None  # of a trial on several computers
