"""What one reading gives; and rates of counters, of which some wrap, go back or begin anew."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

_LEAST_S = 0.01  # readings that are closer together give no rate: their distance is mostly noise

Values = dict[str, float]


@dataclass(slots=True)
class Reading:
    """The values of a source by name, and why others are missing."""

    values: Values = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


class Rates:
    """How fast counters have grown between two readings.

    Times are monotonic seconds: a step of the system clock changes no rate.
    """

    def __init__(self) -> None:
        self._last: dict[Hashable, tuple[float, float]] = {}  # key -> count, time

    def of(self, key: Hashable, count: float, now: float) -> float | None:
        """Return the growth of a counter per second since its last reading.

        None at the first reading, and when the counter is lower than it was: it has wrapped or
        begun anew, and how much was counted meanwhile is unknown.
        """
        before, then = self._last.get(key, (count, now))
        if now - then < _LEAST_S:
            self._last.setdefault(key, (count, now))
            return None
        self._last[key] = (count, now)
        return (count - before) / (now - then) if count >= before else None

    def of_all(self, counts: Mapping[str, float], now: float) -> Values:
        """Return the rates of those of these counters that have one."""
        rates = {name: self.of(name, count, now) for name, count in counts.items()}
        return {name: rate for name, rate in rates.items() if rate is not None}

    def forget(self) -> None:
        """Take the next readings as the first."""
        self._last.clear()
