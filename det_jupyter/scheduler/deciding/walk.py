"""The walk of a pass over the queue: in order, without requests that need not be tried.

Every shape has a front: its first request that was not tried yet. The walk always takes the least
of all fronts. The result there moves that front on: to the group's next request, to another group,
to less urgent requests, or out of the walk. The queue must not change meanwhile.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left

from det_jupyter.scheduler.deciding.order import Key, Queue, Shape
from det_jupyter.scheduler.model import Request


class _Front:
    """One shape: the heads of its groups from `at` on, and what comes after heads passed."""

    def __init__(self, shape: Shape, heads: list[Key]) -> None:
        self.shape = shape
        self.heads = heads
        self.at = 0
        self.later: list[Key] = []  # a heap

    def least(self) -> Key | None:
        head = self.heads[self.at] if self.at < len(self.heads) else None
        if self.later and (head is None or self.later[0] < head):
            return self.later[0]
        return head

    def pass_by(self, key: Key) -> None:
        if self.later and self.later[0] == key:
            heapq.heappop(self.later)
        else:
            self.at += 1


class Walk:
    """One walk along a queue."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._fronts = [
            (heads[0], _Front(shape, heads)) for shape, heads in queue.heads.items() if heads
        ]
        heapq.heapify(self._fronts)

    def next(self) -> tuple[Shape, Request] | None:
        """Return the next request, or None at the end; then call one of the methods below."""
        if not self._fronts:
            return None
        key, front = heapq.heappop(self._fronts)
        front.pass_by(key)
        self.key = key
        self._here = front
        self._request = self._queue.requests[str(key[-1])]
        return front.shape, self._request

    def go_on(self) -> None:
        """Go on, the rest of its group included."""
        after = self._queue.after(self._request)
        if after is not None:
            heapq.heappush(self._here.later, after)
        self.skip_group()

    def skip_group(self) -> None:
        """Go on without the other requests of its group that have this shape."""
        least = self._here.least()
        if least is not None:
            heapq.heappush(self._fronts, (least, self._here))

    def skip_priority(self, priority: int) -> None:
        """Go on with requests of this shape that have a greater priority number."""
        front = self._here
        front.at = max(front.at, bisect_left(front.heads, (priority + 1,)))
        front.later = [key for key in front.later if key[0] > priority]  # type: ignore[operator]
        heapq.heapify(front.later)
        self.skip_group()

    def drop(self) -> None:
        """Go on without this shape: its front is not put back."""
