"""Steps of the system clock: NTP sets it, a person does, a virtual machine wakes.

Times that are stored or shown are UTC seconds. What lasts is reckoned from them, so whoever keeps
such times has to hear when the clock was set. Deadlines and pauses use `time.monotonic`, which no
step touches.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_LEAST_STEP_S = 1.0  # less is adjusted gradually, by NTP too
_LONG_LOOK_S = 0.1  # we were interrupted between two readings, which then do not belong together


def since_boot() -> float:
    """Return the seconds since the computer started, its sleep included where that is known."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class ClockWatch:
    """Compares the clock with one that cannot be set.

    Args:
        wall: The clock, UTC seconds.
        steady: Seconds since whenever.
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = since_boot,
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._offset_s = wall() - steady()

    def step_s(self) -> float:
        """Return by how much the clock was set since the last look; 0: it was not."""
        before = self._steady()
        wall = self._wall()
        if self._steady() - before > _LONG_LOOK_S:
            return 0.0  # the next look will tell
        offset_s = wall - before
        step_s, self._offset_s = offset_s - self._offset_s, offset_s
        return step_s if abs(step_s) >= _LEAST_STEP_S else 0.0
