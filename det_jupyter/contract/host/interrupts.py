"""Counts Ctrl-C. A shell, `timeout` or `docker run` may deliver one of them twice."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

_TWICE_S = 0.3  # signals within this time are of one Ctrl-C


class Interrupts:
    """The times at which a user has pressed Ctrl-C."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.num = 0
        self._clock = clock
        self._last_at = -math.inf

    def note(self) -> bool:
        """Count a signal; return whether it is not one of the Ctrl-C before."""
        now = self._clock()
        is_new = now - self._last_at > _TWICE_S
        if is_new:
            self.num, self._last_at = self.num + 1, now
        return is_new
