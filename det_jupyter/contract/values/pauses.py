"""Pauses between attempts, or between looks at what is waited for. Pure."""

from __future__ import annotations

from collections.abc import Iterator


def growing_pauses(first_s: float, longest_s: float) -> Iterator[float]:
    """Yield pauses without end, each twice as long as the one before, up to the longest.

    >>> from itertools import islice
    >>> list(islice(growing_pauses(0.1, 1.0), 6))
    [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    """
    pause_s = first_s
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, longest_s)
