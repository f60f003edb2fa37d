"""The recent reports of a run's ranks and machines, and the facts made from them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from statistics import fmean

from det_jupyter.contract.messages.reports import SystemSample
from det_jupyter.contract.run.journal import StepTimes
from det_jupyter.diagnosis.rank_times import MIN_BATCHES, MIN_INTERVALS, RECENT_S, RankTimes
from det_jupyter.diagnosis.run_facts import MemoryGrowth, RunMeasurements, Setting

MIN_SECONDS = 1.0
NO_BATCH = (
    "no batch or step of an optimizer of torch after the first interval; a loop that has others "
    "counts them with context.profiler.step()"
)
_NUM_SLICES = 16
_SAMPLE_EVERY_S = 0.9  # samples in between are ignored
_MEMORY_EVERY_S = 5.0
_MAX_MEMORY = 240  # points, which cover 20 minutes
_MEMORY = ("memory_pss", "memory_rss", "gpu_memory")  # RSS only without PSS


class Window:
    """The recent times and samples of one run; samples of other runs are ignored."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self._ranks = [RankTimes() for _ in setting.places]
        self.is_own_loop = False
        self._samples: deque[tuple[str, SystemSample]] = deque()
        self._memory: dict[tuple[int, str, str], deque[tuple[float, float, float | None]]] = {}
        self._sampled_at: dict[str, float] = {}
        self._memory_at: dict[str, float] = {}
        self._own = {
            agent_id: frozenset(_sources_of(setting, agent_id)) for agent_id in setting.agents()
        }

    def add_times(self, rank: int, times: StepTimes) -> bool:
        """Add an interval of a rank; return False if it was added before."""
        self.is_own_loop |= times.own_loop
        return self._ranks[rank].add(times)

    def add_sample(self, agent_id: str, sample: SystemSample) -> None:
        """Add those values of a machine's sample that belong to this run."""
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
            if "memory_pss" in names and "memory_rss" in names:
                names.remove("memory_rss")
            for name in names:
                memory, free = self._memory_of(rank, name)
                points = self._memory.setdefault((rank, of, name), deque(maxlen=_MAX_MEMORY))
                left = sample.values.get(memory, {}).get(free)
                points.append((sample.at, values[name], left))

    def _memory_of(self, rank: int, name: str) -> tuple[str, str]:
        """Return the source and the measure of the free memory that is left to a rank."""
        if name == "gpu_memory":
            return f"gpu:{self.setting.places[rank].gpu}", "gpu_free_memory"
        return "host", "memory_free"

    def missing(self) -> str:
        """Return which data a verdict still lacks; empty if there are enough."""
        without_times = [str(i) for i, times in enumerate(self._ranks) if not times.recent]
        if without_times:
            num = (
                f"rank {without_times[0]}"
                if len(without_times) == 1
                else f"{len(without_times)} ranks"
            )
            return f"{num} reported no times after the first interval"
        batches = min(times.batches for times in self._ranks)
        if batches == 0:
            return NO_BATCH
        if batches < MIN_BATCHES:
            return f"{batches} of {MIN_BATCHES} batches after the first interval"
        if min(len(times.recent) for times in self._ranks) < MIN_INTERVALS:
            return "only one interval after the first"
        if min(times.seconds for times in self._ranks) < MIN_SECONDS:
            return "less than a second after the first interval"
        return ""

    def without_period(self, least: float) -> str:
        """Return a message if checkpoints or validations take share `least`, but happened once."""
        kinds = [kind for times in self._ranks for kind in times.without_period(least)]
        return f"only one {kinds[0]} so far" if kinds else ""

    def facts(self) -> RunMeasurements:
        """Return the facts for the rules. Call it only if `missing` returns nothing."""
        held = max(times.periodic_share() for times in self._ranks)
        transfer = min(times.exchange_share() for times in self._ranks)
        longest = max(self._ranks, key=RankTimes.cycles_share)
        return RunMeasurements(
            ranks=tuple(
                times.facts(rank, held, transfer, slices)
                for rank, (times, slices) in enumerate(
                    zip(self._ranks, self._slices(), strict=True)
                )
            ),
            periodic=longest.cycles(),
            means=_means(self._samples),
            growths=tuple(self._growths()),
        )

    def _slices(self) -> list[list[list[StepTimes]]]:
        """Return each rank's intervals in slices of equal length that all ranks have."""
        begin = min(times.begin for times in self._ranks)
        end = max(times.recent[-1].at for times in self._ranks)
        num = min(_NUM_SLICES, *(len(times.recent) for times in self._ranks))
        of_ranks = [times.sliced(begin, end, num) for times in self._ranks]
        full = [i for i in range(num) if all(slices[i] for slices in of_ranks)]
        return [[slices[i] for i in full] for slices in of_ranks]

    def _growths(self) -> Iterable[MemoryGrowth]:
        for (rank, of, name), points in self._memory.items():
            at, num_bytes, free = zip(*points, strict=True)
            memory, _ = self._memory_of(rank, name)
            yield MemoryGrowth(
                rank=rank,
                of=of,
                name=name,
                memory=f"{self.setting.places[rank].agent_id} {memory}",
                at=at,
                num_bytes=num_bytes,
                free=free,
            )


def _means(samples: Iterable[tuple[str, SystemSample]]) -> dict[tuple[str, str], dict[str, float]]:
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
