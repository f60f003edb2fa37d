"""The kinds of alerts."""

from __future__ import annotations

from enum import StrEnum


class AlertKind(StrEnum):
    """The kind of an alert."""

    FAILED = "failed"  # an experiment has ended in ERROR
    HANG = "hang"  # a gang makes no progress
    NAN = "nan"  # a loss or the searcher's metric is NaN or infinite
    DISK = "disk"  # a disk is full, or nearly
    RECOVERED = "recovered"  # a rank was killed, and the training went on from the last step
    ENDED = "ended"  # an experiment has completed
