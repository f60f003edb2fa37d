"""The first batches of a stream over and over, from memory: training without the cost of input."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

from det_jupyter.pytorch.data.division import Share
from det_jupyter.pytorch.data.streams import BatchStream

_LEAST = 2  # batches that are recorded, however slow the stream is
_RECORDING_S = 3.0


class Replay:
    """A stream that yields its first batches, and then these again, for ever.

    A trial that changes its batches in place gets the changed ones again.

    Args:
        stream: What is recorded. Its workers end when the recording does.
        most: How many batches are recorded; fewer if that takes longer than some seconds.
        clock: Seconds from any moment on.

    Attributes:
        is_recorded: Whether the next batch is a recorded one.
    """

    def __init__(
        self, stream: BatchStream, most: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.is_recorded = False
        self.batches_per_epoch = stream.batches_per_epoch
        self.smallest_share = stream.smallest_share
        self._stream = stream
        self._most = most
        self._clock = clock

    def __iter__(self) -> Iterator[tuple[Any, Share]]:
        recorded: list[tuple[Any, Share]] = []
        end = self._clock() + _RECORDING_S
        for batch in self._stream:
            recorded.append(batch)
            yield batch
            is_late = self._clock() >= end and len(recorded) >= _LEAST
            if is_late or len(recorded) >= self._most:
                break
        self._stream.close()
        self.is_recorded = True
        yield from cycle(recorded)

    def close(self) -> None:
        self._stream.close()
