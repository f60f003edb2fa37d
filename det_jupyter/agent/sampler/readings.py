"""What one reading gives; and rates of counters, of which some wrap, go back or begin anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

_LEAST_S = 0.01  # readings that are closer together give no rate: their distance is mostly noise

Values = dict[str, float]


@dataclass(slots=True)
class Reading:
    """The values of a source by name, and why others are missing."""

    values: Values = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


class Rates:
    """How fast counters have grown between two readings, by name.

    Times are monotonic seconds: a step of the system clock changes no rate.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float]] = {}  # count and time

    def of(self, counts: Mapping[str, float], now: float) -> Values:
        """Return the growth per second of those of these counters that have one.

        A counter has none at its first reading, and when it is lower than it was: it has wrapped
        or begun anew, and how much was counted meanwhile is unknown.
        """
        found: Values = {}
        for name, count in counts.items():
            before, then = self._last.get(name, (inf, now))
            if count >= before and now - then < _LEAST_S:
                continue
            self._last[name] = (count, now)
            if count >= before:
                found[name] = (count - before) / (now - then)
        return found
