"""The recent intervals of one rank, and where its time went in them.

The first interval is left out: compiling, choosing algorithms and filling caches belong to the
start. What is periodic (a validation after each epoch) would be half of the minute in which it
happens and nothing of the next ones: unless it happened often, its share is that of whole cycles.
A long validation is reported in parts: intervals that follow one another, with a part of it each,
may be one (an episode).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from det_jupyter.contract.messages.views import CauseKind
from det_jupyter.contract.run.journal import PartTimes, StepTimes
from det_jupyter.contract.values.measures import SECTION
from det_jupyter.diagnosis.facts import PERIODIC, Periodic, RankFacts, kind_of

RECENT_S = 60.0  # the window
MIN_BATCHES = 20  # though that may take longer than the window
MIN_INTERVALS = 2
_MAX_INTERVALS = 240
_NUM_CYCLES = 6
_OFTEN = 2  # times in a window: its share of the window is that of the time
_EXCHANGE = "exchange"  # transfer and waiting, where they are not told apart


class RankTimes:
    """The recent intervals of one rank, and when periodic things happened."""

    def __init__(self) -> None:
        self.recent: deque[StepTimes] = deque()
        self.batches = 0
        self.seconds = 0.0
        self._first_at: float | None = None
        self._elapsed = 0.0
        self._num_intervals = 0
        self._episodes: dict[CauseKind, deque[_Episode]] = {
            kind: deque(maxlen=_NUM_CYCLES) for kind in PERIODIC
        }

    @property
    def begin(self) -> float:
        return self.recent[0].at - self.recent[0].seconds

    def add(self, times: StepTimes) -> bool:
        if times.at == self._first_at or any(known.at == times.at for known in self.recent):
            return False
        if self._first_at is None:
            self._first_at = times.at
            return True
        self.recent.append(times)
        self.batches += times.batches
        self.seconds += times.seconds
        self._elapsed += times.seconds
        self._num_intervals += 1
        for kind, episodes in self._episodes.items():
            if (part := times.parts.get(kind)) and part.num:
                self._note_episode(episodes, part)
        while self._is_longer_than_needed():
            oldest = self.recent.popleft()
            self.batches -= oldest.batches
            self.seconds -= oldest.seconds
        return True

    def _is_longer_than_needed(self) -> bool:
        if len(self.recent) > _MAX_INTERVALS:
            return True
        oldest = self.recent[0]
        return (
            len(self.recent) > MIN_INTERVALS
            and self.seconds - oldest.seconds >= RECENT_S
            and self.batches - oldest.batches >= MIN_BATCHES
        )

    def sliced(self, begin: float, end: float, num: int) -> list[list[StepTimes]]:
        """Return the intervals by where in that time their middle is."""
        slices: list[list[StepTimes]] = [[] for _ in range(num)]
        for interval in self.recent:
            place = (interval.at - interval.seconds / 2 - begin) / max(end - begin, 1e-9)
            slices[min(num - 1, max(0, int(place * num)))].append(interval)
        return slices

    def periodic_share(self) -> float:
        return _total(self.recent, *PERIODIC) / self.seconds

    def exchange_share(self) -> float:
        return _total(self.recent, _EXCHANGE) / self.seconds

    def facts(
        self, rank: int, held: float, transfer: float, slices: Sequence[Sequence[StepTimes]]
    ) -> RankFacts:
        """Return where the time went.

        Args:
            rank: Its number.
            held: The share of the time in which the rank that was held longest saved or validated:
                the others wait for it meanwhile, which is no waiting of its own kind.
            transfer: The share of exchanges that are not told apart from waiting on the rank where
                it is smallest: that rank waits least, so this is what exchanges take.
            slices: The intervals, in slices of equal length.
        """
        seconds = dict[str, float]()
        for interval in self.recent:
            for name, part in interval.parts.items():
                if not name.startswith(SECTION) and kind_of(name) not in PERIODIC:
                    seconds[name] = seconds.get(name, 0.0) + part.total
        if (both := seconds.pop(_EXCHANGE, 0.0)) > 0:
            apart = {"exchange_transfer": transfer * self.seconds}
            apart["exchange_wait"] = max(0.0, both - apart["exchange_transfer"])
            seconds |= {name: seconds.get(name, 0.0) + value for name, value in apart.items()}
        extra = (held - self.periodic_share()) * self.seconds
        if "exchange_wait" in seconds:
            seconds["exchange_wait"] = max(0.0, seconds["exchange_wait"] - extra)
        total = sum(seconds.values()) or 1.0
        return RankFacts(
            rank=rank,
            batches=self.batches,
            batch_s=total / self.batches,
            parts={name: value / total for name, value in seconds.items()},
            waits=tuple(_wait_share(piece) for piece in slices),
        )

    def cycles_share(self) -> float:
        return sum(cycle.share for cycle in self.cycles().values())

    def cycles(self) -> dict[CauseKind, Periodic]:
        """Return what is periodic, if it happened often enough to say how often it does."""
        found = {}
        for kind in PERIODIC:
            episodes = len(self._episodes[kind])
            often = self._often(kind) if episodes <= _OFTEN else None
            if periodic := often or self._in_cycles(kind):
                found[kind] = periodic
        return found

    def unclear(self, least: float) -> list[CauseKind]:
        """Return what takes that share of the window, and nothing says how often it happens."""
        known = self.cycles()
        return [
            kind
            for kind in PERIODIC
            if kind not in known and _total(self.recent, kind) >= least * self.seconds
        ]

    def _often(self, kind: CauseKind) -> Periodic | None:
        """Return what happened several times within the window."""
        having = [times for times in self.recent if kind in times.parts]
        num = sum(times.parts[kind].num for times in having)
        # One that goes on in the next interval touches two that have batches.
        at_least = max(num - (len(having) - 1), (sum(t.batches > 0 for t in having) + 1) // 2)
        if at_least < _OFTEN:
            return None
        total = _total(having, kind)
        return Periodic(
            share=min(1.0, total / self.seconds), seconds=total / num, every_s=self.seconds / num
        )

    def _in_cycles(self, kind: CauseKind) -> Periodic | None:
        """Return what happened over whole cycles: from the end of one episode to another's."""
        if len(self._episodes[kind]) < 2:
            return None
        first, *others = self._episodes[kind]
        num, total = len(others), sum(episode.seconds for episode in others)
        elapsed = others[-1].end - first.end
        since = self._elapsed - others[-1].end
        if since > 2 * elapsed / num:  # it happens more seldom by now
            elapsed += since
        return Periodic(
            share=min(1.0, total / elapsed), seconds=total / num, every_s=elapsed / num
        )

    def _note_episode(self, episodes: deque[_Episode], part: PartTimes) -> None:
        if not episodes or episodes[-1].interval < self._num_intervals - 1:
            episodes.append(_Episode())
        episode = episodes[-1]
        episode.interval, episode.end = self._num_intervals, self._elapsed
        episode.seconds += part.total


@dataclass(slots=True)
class _Episode:
    """Something periodic, in one interval or several that follow one another."""

    interval: int = 0  # number of the last one
    end: float = 0.0
    seconds: float = 0.0


def _total(intervals: Iterable[StepTimes], *names: str) -> float:
    parts = (interval.parts.get(name) for interval in intervals for name in names)
    return sum(part.total for part in parts if part)


def _wait_share(intervals: Sequence[StepTimes]) -> float:
    seconds = sum(interval.seconds for interval in intervals) - _total(intervals, *PERIODIC)
    return _total(intervals, "exchange_wait", _EXCHANGE) / max(seconds, 1e-9)
