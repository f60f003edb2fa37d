"""Detects steps of the system clock: by NTP, by a user, when a virtual machine wakes.

Times that are stored or shown are UTC seconds, and durations are computed from them. A program
that keeps such times has to correct them after a step. Deadlines and pauses use `time.monotonic`,
which has no steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable

LEAST_STEP_S = 1.0  # NTP corrects smaller offsets gradually, without a step
_LONGEST_READ_S = 0.1  # two clocks that were read further apart cannot be compared


def since_boot() -> float:
    """Return the seconds since boot, including suspend where the system has CLOCK_BOOTTIME."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def booted_at(
    wall: Callable[[], float] = time.time, steady: Callable[[], float] = since_boot
) -> float | None:
    """Return when the system booted, in UTC seconds; the value changes if the clock is set.

    Args:
        wall: Returns the system clock, in seconds.
        steady: Returns a clock without steps, in seconds.

    Returns:
        None if the two clocks were read too far apart to be compared.
    """
    before = steady()
    at = wall() - before
    return at if steady() - before <= _LONGEST_READ_S else None


class ClockWatch:
    """Detects steps of the system clock by comparing it with one that has none.

    Args:
        wall: Returns the system clock, in seconds.
        steady: Returns a clock without steps, in seconds.
    """

    def __init__(
        self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = since_boot
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._booted_at = wall() - steady()

    def step_s(self) -> float:
        """Return the step of the clock since the last call, in seconds; 0 if there was none."""
        if (at := booted_at(self._wall, self._steady)) is None:
            return 0.0  # the next call detects it
        step_s, self._booted_at = at - self._booted_at, at
        return step_s if abs(step_s) >= LEAST_STEP_S else 0.0
