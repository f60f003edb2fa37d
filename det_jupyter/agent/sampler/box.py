"""The samples of one agent that wait to be sent, and why values are missing.

Without a master the oldest samples are dropped. A reason is sent when it is new, and all are sent
to each new connection.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping

from det_jupyter.contract.messages import SystemSample, SystemSampled

MAX_VALUES = 100_000  # kept at a time: 7 MB; 6 minutes of 8 GPUs, 16 ranks, 64 workers
REPORT_VALUES = 20_000  # of one report, about 1 MB
EVERY_S = 1.0  # how often a report is due at most


class SampleBox:
    """Samples that wait to be sent.

    Each has the time at which it was put in, so that they are in the order of their times, from
    whichever reader they come.

    Args:
        clock: Returns UTC seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._samples: deque[tuple[int, SystemSample]] = deque()  # with their numbers of values
        self._num_values = 0
        self._missing: dict[str, dict[str, str]] = {}
        self._news: dict[str, dict[str, str]] = {}
        self._due = -math.inf

    def put(self, values: Mapping[str, Mapping[str, float]]) -> None:
        """Add a sample."""
        kept = {source: _rounded(named) for source, named in values.items() if named}
        if not kept:
            return
        number = sum(map(len, kept.values()))
        self._samples.append((number, SystemSample.model_construct(at=self._clock(), values=kept)))
        self._num_values += number
        while self._num_values > MAX_VALUES:
            self._num_values -= self._samples.popleft()[0]

    def note_missing(self, source: str, reasons: Mapping[str, str]) -> None:
        """Note why names of a source have no values; these are all its reasons."""
        before = self._missing.get(source, {})
        if reasons == before:
            return
        news = {name: reason for name, reason in reasons.items() if before.get(name) != reason}
        if news:
            self._news.setdefault(source, {}).update(news)
        if reasons:
            self._missing[source] = dict(reasons)
        else:
            self._missing.pop(source, None)

    def forget(self, sources: set[str]) -> None:
        """Forget the reasons of sources that are no more."""
        for source in sources:
            self._missing.pop(source, None)

    def reconnected(self) -> None:
        """Send all reasons again: this master may not have them."""
        self._news = {source: dict(reasons) for source, reasons in self._missing.items()}

    def is_due(self, now: float) -> bool:
        """Whether there is something to send, and the last time was long enough ago."""
        return now >= self._due and bool(self._samples or self._news)

    def take(self, now: float) -> SystemSampled:
        """Return the next report; what is in it is not kept."""
        self._due = now + EVERY_S
        samples: list[SystemSample] = []
        room = REPORT_VALUES
        while self._samples and (room > 0 or not samples):
            number, sample = self._samples.popleft()
            samples.append(sample)
            room -= number
            self._num_values -= number
        if self._samples:
            self._due = now
        missing, self._news = self._news, {}
        return SystemSampled(samples=samples, missing=missing)


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in values.items()}
