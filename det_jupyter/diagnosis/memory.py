"""Finds memory use that creeps: it grows steadily until no memory is free.

The start is ignored (a minute, or a quarter of a shorter time), in which caches fill and
allocators settle. The rest is divided into quarters. Each must have a larger median than the one
before, and the second half must have grown at least half as much as the first: memory that levels
off does not creep. The growth must be at least 32 MiB and 1 %. The memory of workers that are
restarted in each epoch rises and falls, and does not count. Growth is reported after three
minutes, or sooner if it has lasted for as long as the free memory will last:

    memory    .             left         at t it has grown by as much as is left, which has
              |         .                shrunk by that: it will be full at 2 t
    free      |     .
              | .  grown
              +---------+---------+      time
              0         t         2 t

The latter requires even growth (EVEN). A cache that fills like 1 - exp(-t / T) is even for 0.5 T
and will take 0.8 T times its rate, which is more than is left; few large steps are not even. The
free memory must have shrunk too: mapped pages of files count as memory of a process, but can be
reclaimed. No growth is reported so early before 3/7 of the free memory is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from det_jupyter.contract.values.text import size
from det_jupyter.diagnosis.run_facts import MemoryGrowth

WARM_UP_S = 60.0
WARM_UP = 0.25  # share of the time, if that is shorter
MIN_S = 180.0
MIN_POINTS = 16
SOON_S = 30.0  # least time for an early report
SOON_POINTS = 8
EVEN = 0.04  # largest mean deviation from a straight line, as a share of the growth
SOON_TAKEN = 0.5  # least decrease of free memory, as a share of the growth
MIN_GROWTH_BYTES = 32 * 2**20
MIN_GROWTH = 0.01
STEADY = 0.5  # least growth of the second half, as a share of the first half's


@dataclass(frozen=True, slots=True)
class Creep:
    """Growing memory, its rate, and the time until no memory is free."""

    growth: MemoryGrowth
    bytes_per_s: float
    full_in_s: float | None  # None if free memory was not sampled

    @property
    def sentence(self) -> str:
        """The rank or its workers, and the rate, as a clause."""
        what = "GPU memory" if self.growth.name == "gpu_memory" else "memory"
        whose = "the loader workers of rank" if self.growth.of == "workers" else "rank"
        rate = f"{size(self.bytes_per_s * 3600)} an hour"
        return f"{what} of {whose} {self.growth.rank} grows by {rate}"


@dataclass(frozen=True, slots=True)
class _Trend:
    """Steady growth after the start."""

    growth: MemoryGrowth
    bytes_per_s: float
    seconds: float
    points: int
    unevenness: float  # mean deviation from a straight line, as a share of the growth
    taken_per_s: float | None  # decrease of free memory


def find_creep(growths: Iterable[MemoryGrowth]) -> Creep | None:
    """Return the memory that creeps fastest; None if none creeps."""
    trends = [trend for growth in growths if (trend := _trend_of(growth))]
    found = []
    for trend in trends:
        free = trend.growth.free_bytes
        left_s = None if free is None else free / _rate_of(trend.growth.memory, trends)
        if _is_certain(trend, left_s):
            found.append(Creep(trend.growth, trend.bytes_per_s, left_s))
    return max(found, key=lambda creep: creep.bytes_per_s, default=None)


def _rate_of(memory: str, trends: Iterable[_Trend]) -> float:
    """Return the rate at which all processes of the run together fill a memory."""
    rates: dict[
        tuple[int, str], float
    ] = {}  # a process may have several measures; the largest counts
    for trend in trends:
        if trend.growth.memory == memory:
            whose = (trend.growth.rank, trend.growth.of)
            rates[whose] = max(trend.bytes_per_s, rates.get(whose, 0.0))
    return sum(rates.values())


def _is_certain(trend: _Trend, left_s: float | None) -> bool:
    if trend.seconds >= MIN_S and trend.points >= MIN_POINTS:
        return True
    return (
        left_s is not None
        and trend.seconds >= max(SOON_S, left_s)
        and trend.unevenness <= EVEN
        and trend.taken_per_s is not None
        and trend.taken_per_s >= SOON_TAKEN * trend.bytes_per_s
    )


def _trend_of(growth: MemoryGrowth) -> _Trend | None:
    """Return the trend of a series; None if it does not grow steadily."""
    start_s = min(WARM_UP_S, WARM_UP * (growth.at[-1] - growth.at[0]))
    first = next(i for i, at in enumerate(growth.at) if at - growth.at[0] >= start_s)
    seconds, points = growth.at[-1] - growth.at[first], len(growth.at) - first
    if points < SOON_POINTS:
        return None
    at, num_bytes = growth.at[first:], growth.num_bytes[first:]
    middles, levels = _quarters(at), _quarters(num_bytes)
    if not all(a < b for a, b in pairwise(levels)):
        return None
    if levels[3] - levels[2] < STEADY * (levels[1] - levels[0]):
        return None
    grown, span_s = levels[3] - levels[0], middles[3] - middles[0]
    if grown < max(MIN_GROWTH_BYTES, MIN_GROWTH * levels[0]):
        return None
    rate = grown / span_s
    line = (levels[0] + rate * (when - middles[0]) for when in at)
    off = fmean(abs(num - even) for num, even in zip(num_bytes, line, strict=True))
    free = [each for each in growth.free[first:] if each is not None]
    frees = _quarters(free) if len(free) >= SOON_POINTS else None
    return _Trend(
        growth=growth,
        bytes_per_s=rate,
        seconds=seconds,
        points=points,
        unevenness=off / grown,
        taken_per_s=None if frees is None else (frees[0] - frees[3]) / span_s,
    )


def _quarters(values: Sequence[float]) -> list[float]:
    """Return the median of each quarter of the values."""
    num = len(values) / 4
    return [median(values[int(i * num) : int((i + 1) * num)]) for i in range(4)]
