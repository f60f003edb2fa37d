"""What one reading gives; and rates of counters, of which some wrap, go back or begin anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_LEAST_S = 0.01  # readings that are closer together give no rate: their distance is mostly noise

Values = dict[str, float]


@dataclass(slots=True)
class Reading:
    """The values of a source by name, and why others are missing."""

    values: Values = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


class Rate:
    """How fast a counter has grown between two readings.

    Times are monotonic seconds: a step of the system clock changes no rate.
    """

    __slots__ = ("_count", "_then")

    def __init__(self) -> None:
        self._count = 0.0
        self._then: float | None = None

    def of(self, count: float, now: float) -> float | None:
        """Return the growth of the counter per second since its last reading.

        None at the first reading, and when the counter is lower than it was: it has wrapped or
        begun anew, and how much was counted meanwhile is unknown.
        """
        before, then = self._count, self._then
        if then is None or count < before:
            self._count, self._then = count, now
            return None
        if now - then < _LEAST_S:
            return None
        self._count, self._then = count, now
        return (count - before) / (now - then)


class Rates:
    """The rates of counters by name."""

    def __init__(self) -> None:
        self._rates: dict[str, Rate] = {}

    def of(self, counts: Mapping[str, float], now: float) -> Values:
        """Return the rates of those of these counters that have one."""
        found: Values = {}
        for name, count in counts.items():
            rate = self._rates.setdefault(name, Rate()).of(count, now)
            if rate is not None:
                found[name] = rate
        return found
