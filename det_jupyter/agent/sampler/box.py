"""Buffers the samples of one agent until they are sent, and the reasons for missing values.

Without a master the oldest samples are dropped. A reason is sent when it is new, and all reasons
are sent to each new connection.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping

from det_jupyter.contract.messages import SystemSample, SystemSampled

MAX_VALUES = 100_000  # in the buffer: 7 MB; 6 minutes of 8 GPUs, 16 ranks, 64 workers
REPORT_VALUES = 20_000  # in one report, about 1 MB
EVERY_S = 1.0  # shortest interval between two reports


class SampleBox:
    """Samples that were not sent yet.

    The time of a sample is when it was added, so that samples of all readers are in order.

    Args:
        clock: Returns UTC seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._samples: deque[tuple[int, SystemSample]] = deque()  # with the number of values
        self._num_values = 0
        self._missing: dict[str, dict[str, str]] = {}
        self._unsent: dict[str, dict[str, str]] = {}  # reasons
        self._due = -math.inf

    def put(self, values: Mapping[str, Mapping[str, float]]) -> None:
        """Add a sample: values by source and name, which are rounded to two decimal places."""
        kept = {
            source: {name: round(value, 2) for name, value in named.items()}
            for source, named in values.items()
            if named
        }
        if not kept:
            return
        number = sum(map(len, kept.values()))
        self._samples.append((number, SystemSample.model_construct(at=self._clock(), values=kept)))
        self._num_values += number
        while self._num_values > MAX_VALUES:
            self._num_values -= self._samples.popleft()[0]

    def set_missing(self, source: str, reasons: Mapping[str, str]) -> None:
        """Replace the reasons, by name, why a source lacks values."""
        before = self._missing.get(source, {})
        if reasons == before:
            return
        changed = {name: reason for name, reason in reasons.items() if before.get(name) != reason}
        if changed:
            self._unsent.setdefault(source, {}).update(changed)
        if reasons:
            self._missing[source] = dict(reasons)
        else:
            self._missing.pop(source, None)

    def drop(self, sources: set[str]) -> None:
        """Drop the reasons of sources that do not exist any more."""
        for source in sources:
            self._missing.pop(source, None)

    def reconnected(self) -> None:
        """Send all reasons again: the new master may not have stored them."""
        self._unsent = {source: dict(reasons) for source, reasons in self._missing.items()}

    def is_due(self, now: float) -> bool:
        """Return whether a report is due: `EVERY_S` have passed and there is something to send."""
        return now >= self._due and bool(self._samples or self._unsent)

    def take(self, now: float) -> SystemSampled:
        """Return the next report and remove its content from the buffer."""
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
        missing, self._unsent = self._unsent, {}
        return SystemSampled(samples=samples, missing=missing)
