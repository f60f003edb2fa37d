"""The result of one reading, and rates of counters that may wrap, go back or start again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

_LEAST_S = 0.01  # readings closer together than this give no rate, only noise

Values = dict[str, float]


@dataclass(slots=True)
class Reading:
    """The values of a source by name, and the reasons why others are missing."""

    values: Values = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


class Rates:
    """Growth per second of counters between two readings, by name.

    Times are monotonic seconds, so a step of the system clock changes no rate.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float]] = {}  # count and time

    def of(self, counts: Mapping[str, float], now: float) -> Values:
        """Return the rates of these counters since their last readings.

        A counter has no rate at its first reading, nor when it is lower than before: then it has
        wrapped or started again, and how much was counted meanwhile is unknown.
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
