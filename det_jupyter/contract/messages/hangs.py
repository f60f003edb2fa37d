"""Reports on ranks that make no progress and on gangs that hang: as data, and as a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Literal

from det_jupyter.contract.messages.wire import Wire
from det_jupyter.contract.values.bounds import Count, PrintableText, ProcessId, Rank, Timestamp
from det_jupyter.contract.values.text import clock, ranks_text, rough_duration


class RankStall(Wire):
    """A rank of a gang without progress, as its agent has found it."""

    rank: Rank
    # waits: in a collective, for other ranks. still: its main thread does not move. stopped: by a
    # signal or a debugger. held: the same as still, and it holds the interpreter's lock (GIL).
    kind: Literal["waits", "still", "stopped", "held"]
    pid: ProcessId = 0
    batch: Count | None = None  # index of the batch that it has begun; None: unknown
    # In which it waits, such as `all_reduce [4] float32`; "": unknown.
    collective: PrintableText = ""
    number: Count | None = None  # number of this collective in torch's default group
    call: PrintableText = ""  # the call that its main thread is in, such as `time.sleep`
    place: PrintableText = ""  # the place of that call: `cell 12, line 8`
    child: PrintableText = ""  # where a data-loader worker is, if the rank waits for it
    evidence: list[PrintableText] = []  # sentences with what was measured
    begun: dict[Count, PrintableText] = {}  # the last collectives of torch's default group
    stack: PrintableText = ""  # the stack of its main thread, innermost frame last


class HangReport(Wire):
    """A gang that makes no progress: every rank of it waits, or does not move."""

    since: Timestamp  # since when nothing has moved
    at: Timestamp  # when it was found
    ranks: list[RankStall]

    @property
    def culprits(self) -> list[RankStall]:
        """The ranks that the others wait for; [] if all ranks wait in collectives."""
        return [rank for rank in self.ranks if rank.kind != "waits"]

    def sentence(self, now: float | None = None) -> str:
        """Return which ranks do not move, where they are, and which ranks wait for them.

        Args:
            now: UTC seconds, for "for 14 s"; None: the sentence says "since 15:40:12".
        """
        span = f"since {clock(self.since)}"
        if now is not None:
            span = f"for {_seconds(now - self.since)}"
        if self.culprits:
            return self._of_culprits(span)
        return self._of_waiting(span)

    def _of_culprits(self, span: str) -> str:
        groups = _grouped(self.culprits, _position)
        parts = [f"{_named(ranks)} {have} been {what}" for what, ranks, have in groups]
        first = f"{' and '.join(parts[:3])} {span}"
        if len(parts) > 3:
            first += f" (and {len(parts) - 3} more)"
        waiting = [rank for rank in self.ranks if rank.kind == "waits"]
        if not waiting:
            return first + _batch_text(self.culprits)
        it = "it" if len(self.culprits) == 1 else "them"
        wait = "waits" if len(waiting) == 1 else "wait"
        names = [
            f"{_named(ranks)} {wait} for {it} in {what}"
            for what, ranks, _ in _grouped(waiting, lambda rank: _operation(rank.collective))[:2]
        ]
        return f"{first}; {' and '.join(names)}{_batch_text(waiting)}"

    def _of_waiting(self, span: str) -> str:
        if text := describe_mismatch(self.ranks):
            return f"{text}, and they have waited {span}{_batch_text(self.ranks)}"
        groups = _grouped(self.ranks, lambda rank: rank.collective or "a collective")
        if len(groups) == 1 and len({rank.number for rank in self.ranks}) == 1:
            batch = _batch_text(self.ranks)
            if len(self.ranks) == 1:
                return f"{_named(self.ranks)} has waited in {groups[0][0]}{batch} {span}"
            return (
                f"all ranks have waited in the same collective {span}: {groups[0][0]}{batch}; "
                "the communication between them hangs"
            )
        parts = [f"{_named(ranks)} in {what}{_place_text(ranks)}" for what, ranks, _ in groups[:3]]
        return (
            f"ranks have waited for each other in different collectives {span}: "
            f"{' and '.join(parts)}{_batch_text(self.ranks)}"
        )


def describe_mismatch(ranks: Sequence[RankStall]) -> str:
    """Return which ranks entered another collective, or another shape, than the first; or "".

    Only collectives with the same number are compared.
    """
    for number in sorted({number for rank in ranks for number in rank.begun}):
        first, *others = [rank for rank in ranks if number in rank.begun]
        for other in others:
            if other.begun[number] != first.begun[number]:
                mine, theirs = _apart(other.begun[number], first.begun[number])
                return f"{_named([other])} entered {mine} where {_named([first])} entered {theirs}"
    return ""


def _apart(one: str, other: str) -> tuple[str, str]:
    """Return two collectives without the types of their elements, if these are equal."""
    ends = one.rpartition(" ")[2], other.rpartition(" ")[2]
    if ends[0] == ends[1] and not ends[0].endswith("]"):
        one, other = one.rpartition(" ")[0] or one, other.rpartition(" ")[0] or other
    return one, other


def _position(rank: RankStall) -> str:
    """Return where a rank is, as a predicate after "has been"."""
    if rank.kind == "stopped":
        return stopped_text(rank.pid)
    where = f" ({rank.place})" if rank.place else ""
    what = f"in `{rank.call}`{where}" if rank.call else f"motionless{where}"
    if rank.kind == "held":
        what = f"{what if rank.call else 'in C code'}, which holds the GIL,"
    return f"waiting for its data loader, whose worker {rank.child}," if rank.child else what


def stopped_text(pid: int) -> str:
    """Return the predicate for a stopped process, with the command that continues it."""
    return f"stopped by a signal or a debugger (`kill -CONT {pid}` lets it continue)"


def _operation(collective: str) -> str:
    """Return the name of a collective, without shape and type."""
    return collective.partition(" [")[0] or "a collective"


def _grouped(ranks: Sequence[RankStall], key: object) -> list[tuple[str, list[RankStall], str]]:
    """Return the ranks by what `key` returns for them, with "has" or "have"; lowest rank first."""
    assert callable(key)
    ordered = sorted(ranks, key=lambda rank: (key(rank), rank.rank))
    groups = [(what, list(group)) for what, group in groupby(ordered, key=key)]
    groups.sort(key=lambda group: group[1][0].rank)
    return [(what, group, "has" if len(group) == 1 else "have") for what, group in groups]


def _seconds(seconds: float) -> str:
    """Return a duration: `14 s`, `3 min`."""
    return f"{max(1, round(seconds))} s" if seconds < 120 else rough_duration(seconds)


def _named(ranks: Sequence[RankStall]) -> str:
    return ranks_text(rank.rank for rank in ranks)


def _place_text(ranks: Sequence[RankStall]) -> str:
    places = {rank.place for rank in ranks}
    return f" ({next(iter(places))})" if len(places) == 1 and places != {""} else ""


def _batch_text(ranks: Sequence[RankStall]) -> str:
    batches = {rank.batch for rank in ranks if rank.batch is not None}
    return f", batch {min(batches)}" if batches else ""
