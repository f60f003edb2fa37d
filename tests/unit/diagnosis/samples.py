"""Made-up times and samples of ranks whose bottleneck is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from det_jupyter.contract.messages import SystemSample, Verdict
from det_jupyter.contract.run.journal import PartTimes, StepTimes
from det_jupyter.diagnosis import RankSite, RunVerdict, Setting
from det_jupyter.diagnosis.memory import find_creep
from det_jupyter.diagnosis.run_facts import MemoryGrowth

NOW = 1_790_000_000.0
RUN = "7.1.1"
INTERVAL_S = 1.0
Parts = Mapping[str, float]  # milliseconds a batch

HEALTHY: Parts = {"dataloader_next": 0.1, "forward": 3.0, "backward": 6.0, "optimizer": 0.6,
                  "rest": 0.3}  # fmt: skip


def setting(
    num_ranks: int = 1, *, places: list[RankSite] | None = None, **changes: object
) -> Setting:
    where = places or [RankSite(agent_id="local")] * num_ranks
    return Setting(allocation_id=RUN, places=tuple(where), **changes)  # type: ignore[arg-type]


def gpus(num: int) -> list[RankSite]:
    return [RankSite(agent_id="local", gpu=f"G{i}", kind="H100") for i in range(num)]


def interval(index: int, parts: Parts, *, once: Parts | None = None) -> StepTimes:
    """Return an interval of batches that each take these parts, and what happens once in it."""
    once = once or {}
    batch_ms = sum(parts.values())
    num = max(1, round((INTERVAL_S * 1000 - sum(once.values())) / batch_ms))
    single = {name: _part(num, value) for name, value in parts.items()}
    single |= {name: _part(1, value) for name, value in once.items()}
    return StepTimes(
        at=NOW + (index + 1) * INTERVAL_S,
        first=index * 100 + 1,
        batches=num,
        samples=num * 32,
        seconds=sum(part.total for part in single.values()),
        parts=single,
    )


def _part(num: int, ms: float) -> PartTimes:
    each = ms / 1000
    return PartTimes(num, num * each, each, each, each)


def together(own: list[Parts], exchange_ms: float = 0.2) -> list[Parts]:
    """Return the parts of ranks that wait for the slowest of them at each batch's end."""
    slowest = max(sum(parts.values()) for parts in own)
    return [
        {
            **parts,
            "exchange_wait": slowest - sum(parts.values()),
            "exchange_transfer": exchange_ms,
        }
        for parts in own
    ]


def noisy(parts: Parts, percent: float, random: Random) -> Parts:
    return {
        name: value * (1 + random.uniform(-percent, percent) / 100)
        for name, value in parts.items()
    }


def run(
    of_ranks: Callable[[int], list[Parts]] | list[Parts],
    *,
    about: Setting | None = None,
    num_intervals: int = 12,
    once: Callable[[int], list[Parts]] | None = None,
    samples: Callable[[int], Mapping[str, Mapping[str, float]]] | None = None,
) -> RunVerdict:
    """Return what has seen so many intervals, judged after each of them."""
    first = of_ranks if isinstance(of_ranks, list) else of_ranks(0)
    current = RunVerdict(about or setting(len(first)))
    for index in range(num_intervals):
        parts = of_ranks if isinstance(of_ranks, list) else of_ranks(index)
        seldom = [{}] * len(parts) if once is None else once(index)
        for rank, own in enumerate(parts):
            current.add_times(rank, interval(index, own, once=seldom[rank]))
        if samples is not None:
            values = {source: dict(found) for source, found in samples(index).items()}
            current.add_sample("local", SystemSample(at=NOW + index + 1, values=values))
        current.judge(NOW + index + 1)
    return current


def verdict_of(current: RunVerdict) -> Verdict:
    assert current.verdict is not None
    return current.verdict


def creep_rate(growth: MemoryGrowth) -> float:
    """Return by how many bytes a second this memory creeps; 0 if it does not."""
    creep = find_creep([growth])
    return creep.bytes_per_s if creep else 0.0
