"""The recent past of a run: what its ranks and machines reported, as far back as rules look.

The first interval of each rank is left out: compiling, choosing algorithms and filling caches
belong to the start. What is periodic (a validation after each epoch) would be half of the minute
in which it happens and nothing of the next ones: its share is that of whole cycles.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from det_jupyter.diagnosis.facts import (
    PERIODIC,
    Facts,
    Growth,
    Periodic,
    RankFacts,
    Setting,
    kind_of,
)
from det_jupyter.measures import SECTION
from det_jupyter.records import StepTimes
from det_jupyter.wire.gangs import SystemSample
from det_jupyter.wire.verdict import CauseKind

RECENT_S = 60.0  # the window
MIN_BATCHES = 20  # though that may take longer than the window
MIN_INTERVALS = 2
MIN_SECONDS = 1.0
_MAX_INTERVALS = 240
_NUM_SLICES = 8
_NUM_CYCLES = 6
_SAMPLE_EVERY_S = 0.9  # finer ones are left out
_MEMORY_EVERY_S = 5.0
_MAX_MEMORY = 240  # points: 20 minutes
_EXCHANGE = "exchange"  # transfer and waiting, where they are not told apart
_MEMORY = ("memory_pss", "memory_rss", "gpu_memory")  # of the first two, the first there is


class Window:
    """What was reported of one run.

    Args:
        setting: Says which sources of samples are its own.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self._ranks = [_RankTimes() for _ in setting.places]
        self._samples: deque[tuple[str, SystemSample]] = deque()
        self._memory: dict[tuple[int, str, str], deque[tuple[float, float]]] = {}
        self._sampled_at: dict[str, float] = {}
        self._memory_at: dict[str, float] = {}
        self._own = {
            agent_id: frozenset(_sources_of(setting, agent_id)) for agent_id in setting.agents()
        }

    def add_times(self, rank: int, times: StepTimes) -> bool:
        """Add an interval; return False for one that is known already."""
        return self._ranks[rank].add(times)

    def add_sample(self, agent_id: str, sample: SystemSample) -> None:
        """Add what is this run's of a sample of its machines."""
        if abs(sample.at - self._sampled_at.get(agent_id, 0.0)) < _SAMPLE_EVERY_S:
            return
        own = self._own.get(agent_id, frozenset())
        values = {source: found for source, found in sample.values.items() if source in own}
        if not values:
            return
        self._sampled_at[agent_id] = sample.at
        kept = SystemSample.model_construct(at=sample.at, values=values)
        self._samples.append((agent_id, kept))
        while abs(sample.at - self._samples[0][1].at) > RECENT_S:
            self._samples.popleft()
        if abs(sample.at - self._memory_at.get(agent_id, 0.0)) >= _MEMORY_EVERY_S:
            self._memory_at[agent_id] = sample.at
            self._add_memory(kept)

    def _add_memory(self, sample: SystemSample) -> None:
        for source, values in sample.values.items():
            of, _, rest = source.partition(":")
            if of not in ("rank", "workers"):
                continue
            rank = int(rest.rpartition(":")[2])
            names = [name for name in _MEMORY if name in values]
            for name in names[1:] if names[:2] == list(_MEMORY[:2]) else names:
                points = self._memory.setdefault((rank, of, name), deque(maxlen=_MAX_MEMORY))
                points.append((sample.at, values[name]))

    def missing(self) -> str:
        """Return what there is too little of to say anything, or nothing."""
        silent = [str(i) for i, times in enumerate(self._ranks) if not times.recent]
        if silent:
            num = f"rank {silent[0]}" if len(silent) == 1 else f"{len(silent)} ranks"
            return f"no times of {num} after the first interval"
        batches = min(times.batches for times in self._ranks)
        if batches < MIN_BATCHES:
            return f"{batches} batches after the first interval, {MIN_BATCHES} are needed"
        if min(len(times.recent) for times in self._ranks) < MIN_INTERVALS:
            return "only one interval after the first"
        if min(times.seconds for times in self._ranks) < MIN_SECONDS:
            return "less than a second after the first interval"
        return ""

    def facts(self) -> Facts:
        """Return what the rules look at; only if nothing is missing."""
        held = max(times.periodic_share() for times in self._ranks)
        transfer = min(times.exchange_share() for times in self._ranks)
        begin = min(times.begin for times in self._ranks)
        end = max(times.recent[-1].at for times in self._ranks)
        num_slices = min(_NUM_SLICES, *(len(times.recent) for times in self._ranks))
        longest = max(self._ranks, key=_RankTimes.cycles_share)
        return Facts(
            ranks=tuple(
                times.facts(rank, held, transfer, self._slices(times, begin, end, num_slices))
                for rank, times in enumerate(self._ranks)
            ),
            seconds=max(times.seconds for times in self._ranks),
            periodic=longest.cycles(),
            means=_means(self._samples),
            growths=tuple(self._growths()),
        )

    def _slices(
        self, times: _RankTimes, begin: float, end: float, num: int
    ) -> list[list[StepTimes]]:
        slices: list[list[StepTimes]] = [[] for _ in range(num)]
        for interval in times.recent:
            place = (interval.at - interval.seconds / 2 - begin) / max(end - begin, 1e-9)
            slices[min(num - 1, max(0, int(place * num)))].append(interval)
        return slices

    def _growths(self) -> Iterable[Growth]:
        for (rank, of, name), points in self._memory.items():
            place = self.setting.places[rank]
            last = self._last(place.agent_id)
            source, free = (
                (f"gpu:{place.gpu}", "gpu_free_memory")
                if name == "gpu_memory"
                else ("host", "memory_free")
            )
            yield Growth(
                rank=rank,
                of=of,
                name=name,
                at=tuple(at for at, _ in points),
                num_bytes=tuple(num_bytes for _, num_bytes in points),
                free_bytes=last.get(source, {}).get(free),
            )

    def _last(self, agent_id: str) -> Mapping[str, Mapping[str, float]]:
        found = (sample.values for agent, sample in reversed(self._samples) if agent == agent_id)
        return next(found, {})


class _RankTimes:
    """The recent intervals of one rank, and when periodic things happened."""

    def __init__(self) -> None:
        self.recent: deque[StepTimes] = deque()
        self.batches = 0
        self.seconds = 0.0
        self._first_at: float | None = None
        self._elapsed = 0.0
        self._happened: dict[CauseKind, deque[tuple[float, float, int]]] = {
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
        for kind, happened in self._happened.items():
            if (part := times.parts.get(kind)) and part.num:
                happened.append((self._elapsed, part.total, part.num))
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
        """Return what is periodic, over whole cycles: from the end of one to that of another."""
        found = {}
        for kind, happened in self._happened.items():
            if len(happened) < 2:
                continue
            begin, *_ = happened[0]
            last, *_ = happened[-1]
            num = sum(count for _, _, count in list(happened)[1:])
            total = sum(part for _, part, _ in list(happened)[1:])
            elapsed = last - begin
            since = self._elapsed - last
            if since > 2 * elapsed / (len(happened) - 1):  # it happens more seldom by now
                elapsed += since
            found[kind] = Periodic(
                share=min(1.0, total / elapsed), seconds=total / num, every_s=elapsed / num
            )
        return found


def _total(intervals: Iterable[StepTimes], *names: str) -> float:
    parts = (interval.parts.get(name) for interval in intervals for name in names)
    return sum(part.total for part in parts if part)


def _wait_share(intervals: Sequence[StepTimes]) -> float:
    seconds = sum(interval.seconds for interval in intervals) - _total(intervals, *PERIODIC)
    return _total(intervals, "exchange_wait", _EXCHANGE) / max(seconds, 1e-9)


def _means(
    samples: Iterable[tuple[str, SystemSample]],
) -> dict[tuple[str, str], dict[str, float]]:
    values: dict[tuple[str, str], dict[str, list[float]]] = {}
    for agent_id, sample in samples:
        for source, found in sample.values.items():
            lists = values.setdefault((agent_id, source), {})
            for name, value in found.items():
                lists.setdefault(name, []).append(value)
    return {key: {name: fmean(all_) for name, all_ in of.items()} for key, of in values.items()}


def _sources_of(setting: Setting, agent_id: str) -> Iterable[str]:
    yield "host"
    for rank, place in enumerate(setting.places):
        if place.agent_id == agent_id:
            yield f"rank:{setting.allocation_id}:{rank}"
            yield f"workers:{setting.allocation_id}:{rank}"
            yield f"gpu:{place.gpu}"
