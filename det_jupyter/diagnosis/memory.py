"""Memory that creeps: it grows steadily, and will be full.

Medians of the quarters of at least three minutes, after the first minute (caches fill, allocators
settle): each is larger than the one before, and the second half grew at least half as much as the
first one. What levels off is no creep. Growth counts from 32 MiB on, and from 1 % of what there
was. Of workers that come and go with each epoch the quarters go up and down.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from det_jupyter.diagnosis.facts import Growth
from det_jupyter.words import size

WARM_UP_S = 60.0
MIN_S = 180.0
MIN_POINTS = 16
MIN_GROWTH_BYTES = 32 * 2**20
MIN_GROWTH = 0.01
STEADY = 0.5  # growth of the second half, of the first half's


@dataclass(frozen=True, slots=True)
class Creep:
    """Memory that grows, how fast, and when the rest is used up."""

    growth: Growth
    bytes_per_s: float
    full_in_s: float | None  # not known without a sample of what is free

    @property
    def sentence(self) -> str:
        """Whose memory grows, and how fast."""
        what = "GPU memory" if self.growth.name == "gpu_memory" else "memory"
        whose = "the loader workers of rank" if self.growth.of == "workers" else "rank"
        rate = f"{size(self.bytes_per_s * 3600)} an hour"
        return f"{what} of {whose} {self.growth.rank} grows by {rate}"


def find_creep(growths: tuple[Growth, ...]) -> Creep | None:
    """Return the memory that grows fastest, if some creeps."""
    found = [
        Creep(growth, rate, None if growth.free_bytes is None else growth.free_bytes / rate)
        for growth in growths
        if (rate := creep_rate(growth))
    ]
    return max(found, key=lambda creep: creep.bytes_per_s, default=None)


def creep_rate(growth: Growth) -> float:
    """Return by how many bytes a second this memory creeps; 0 if it does not."""
    points = [
        (at, num)
        for at, num in zip(growth.at, growth.num_bytes, strict=True)
        if at - growth.at[0] >= WARM_UP_S
    ]
    if len(points) < MIN_POINTS or (span := points[-1][0] - points[0][0]) < MIN_S:
        return 0.0
    quarter = len(points) / 4
    levels = [
        median(num for _, num in points[int(i * quarter) : int((i + 1) * quarter)])
        for i in range(4)
    ]
    first, second = levels[1] - levels[0], levels[3] - levels[2]
    grown = levels[3] - levels[0]
    if not all(a < b for a, b in pairwise(levels)) or second < STEADY * first:
        return 0.0
    if grown < max(MIN_GROWTH_BYTES, MIN_GROWTH * levels[0]):
        return 0.0
    return grown / (0.75 * span)
