"""Pauses after failed attempts to send, and the number of attempts that counts as a problem."""

from __future__ import annotations

from dataclasses import dataclass

SOME_ATTEMPTS = 3  # failed attempts after which the master reports a problem
_FIRST_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses:
    """Pauses that grow by a factor, up to the longest.

    >>> [ALERTS.pause_s(attempts) for attempts in (1, 2, 3, 9)]
    [5.0, 20.0, 80.0, 3600.0]
    >>> [TRACKERS.pause_s(attempts) for attempts in (1, 2, 7, 1000)]
    [5.0, 10.0, 300.0, 300.0]
    """

    factor: float
    longest_s: float

    def pause_s(self, attempts: int, *, asked_s: float = 0.0) -> float:
        """Return the seconds to wait after this many failed attempts, at least one.

        Args:
            asked_s: Seconds that the receiver requests to wait.
        """
        pause_s = _FIRST_S * self.factor ** min(attempts - 1, 20)
        return min(max(pause_s, asked_s), self.longest_s)


ALERTS = Pauses(factor=4.0, longest_s=3600.0)
TRACKERS = Pauses(factor=2.0, longest_s=300.0)
