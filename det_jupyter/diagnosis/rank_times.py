"""The recent intervals of one rank, and the shares of its time in them.

The first interval is ignored: compiling, choosing algorithms and filling caches belong to the
start. A periodic part (a validation after each epoch) may take half of the window in which it
happens and none of the next ones. So unless it happened often, its share is computed over whole
cycles. A long validation is reported in several consecutive intervals, which are one episode.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from det_jupyter.contract.messages.verdicts import CauseKind
from det_jupyter.contract.run.journal import PartTimes, StepTimes
from det_jupyter.contract.values.measures import SECTION
from det_jupyter.diagnosis.run_facts import PERIODIC, Periodic, RankFacts, kind_of

RECENT_S = 60.0  # length of the window
MIN_BATCHES = 20  # fewest batches in the window, which is longer if necessary
MIN_INTERVALS = 2
_MAX_INTERVALS = 240
_NUM_CYCLES = 6
_OFTEN = 2  # fewest episodes in a window for which their share of it is used
_EXCHANGE = "exchange"  # transfer and waiting, where they are not measured apart


class RankTimes:
    """The recent intervals of one rank, and the times of checkpoints and validations."""

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
        """Add an interval; return False if it was added before."""
        if times.at == self._first_at or any(other.at == times.at for other in self.recent):
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
                self._add_to_episode(episodes, part)
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
        """Return the intervals in `num` slices of that time, each by its middle."""
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
        """Return the shares of the rank's time.

        Args:
            rank: Its rank.
            held: The largest share of checkpoints and validations of any rank. Other ranks wait
                for that rank meanwhile; this is subtracted from their waiting.
            transfer: The smallest share of exchanges of any rank, for exchanges in which waiting
                is not measured apart. That rank waits least, so its share is the transfer.
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
        """Return share and period of checkpoints and validations that happened often enough."""
        found = {}
        for kind in PERIODIC:
            episodes = len(self._episodes[kind])
            in_window = self._in_window(kind) if episodes <= _OFTEN else None
            if periodic := in_window or self._in_cycles(kind):
                found[kind] = periodic
        return found

    def without_period(self, least: float) -> list[CauseKind]:
        """Return the kinds with at least this share of the window whose period is not known."""
        cycles = self.cycles()
        return [
            kind
            for kind in PERIODIC
            if kind not in cycles and _total(self.recent, kind) >= least * self.seconds
        ]

    def _in_window(self, kind: CauseKind) -> Periodic | None:
        """Return share and period within the window, for what happened there several times."""
        having = [times for times in self.recent if kind in times.parts]
        num = sum(times.parts[kind].num for times in having)
        # One that continues in the next interval is counted in both.
        at_least = max(num - (len(having) - 1), (sum(t.batches > 0 for t in having) + 1) // 2)
        if at_least < _OFTEN:
            return None
        total = _total(having, kind)
        return Periodic(
            share=min(1.0, total / self.seconds), seconds=total / num, every_s=self.seconds / num
        )

    def _in_cycles(self, kind: CauseKind) -> Periodic | None:
        """Return share and period over whole cycles: from the end of one episode to another's."""
        if len(self._episodes[kind]) < 2:
            return None
        first, *others = self._episodes[kind]
        num, total = len(others), sum(episode.seconds for episode in others)
        elapsed = others[-1].end - first.end
        since = self._elapsed - others[-1].end
        if since > 2 * elapsed / num:  # the period has become longer
            elapsed += since
        return Periodic(
            share=min(1.0, total / elapsed), seconds=total / num, every_s=elapsed / num
        )

    def _add_to_episode(self, episodes: deque[_Episode], part: PartTimes) -> None:
        if not episodes or episodes[-1].interval < self._num_intervals - 1:
            episodes.append(_Episode())
        episode = episodes[-1]
        episode.interval, episode.end = self._num_intervals, self._elapsed
        episode.seconds += part.total


@dataclass(slots=True)
class _Episode:
    """One checkpoint or validation, in one interval or in several consecutive ones."""

    interval: int = 0  # number of the last one
    end: float = 0.0
    seconds: float = 0.0


def _total(intervals: Iterable[StepTimes], *names: str) -> float:
    parts = (interval.parts.get(name) for interval in intervals for name in names)
    return sum(part.total for part in parts if part)


def _wait_share(intervals: Sequence[StepTimes]) -> float:
    seconds = sum(interval.seconds for interval in intervals) - _total(intervals, *PERIODIC)
    return _total(intervals, "exchange_wait", _EXCHANGE) / max(seconds, 1e-9)
