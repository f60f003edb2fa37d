"""How far this run trains, and what its search wants when it is there.

The plan of a run says how far. A run that comes there and is not to end tells so, and waits in its
slots: a promoted trial goes on without having been away. The answer comes as a word of the control
page, in milliseconds: a farther target, or the request to leave.
"""

from __future__ import annotations

import time

from det_jupyter.config import Length
from det_jupyter.control import ControlPage
from det_jupyter.core.distributed import DistributedContext
from det_jupyter.core.train import RecordSink, checked_steps
from det_jupyter.records import TargetReached

_PAUSES_S = (0.001, 0.02)  # first and longest, between two looks at the control page


class SearcherContext:
    """The target of this run.

    Args:
        target: How far to train, counted from the trial's beginning.
        is_last: The run ends there.
        page: The chief's control page; None off the cluster, and on the other ranks.
        distributed: The ranks.
        sink: Gets the chief's word that the target is reached.
    """

    def __init__(
        self,
        target: Length,
        *,
        is_last: bool,
        page: ControlPage | None,
        distributed: DistributedContext,
        sink: RecordSink,
    ) -> None:
        self.target = target
        self.is_last = is_last
        self._page = page
        self._distributed = distributed
        self._sink = sink

    def report_reached(self, steps_completed: int) -> None:
        """Tell that the trial has trained, validated and saved up to its target."""
        if self._distributed.is_chief:
            self._sink.write(
                TargetReached(
                    at=time.time(),
                    steps_completed=checked_steps(steps_completed),
                    target=self.target.to_document(),
                )
            )

    def was_extended(self) -> bool:
        """Return whether there is a farther `target` already, and aim at it; waits for nothing.

        Collective: all ranks must call it.
        """
        page = self._page
        found = page.target() if page is not None else None
        return self._follow(found if found and found[0] > self.target.amount else None)

    def await_next(self) -> bool:
        """Wait until there is a farther `target` (True), or the run shall leave (False).

        Collective: all ranks must call it, and wait with the chief.
        """
        return self._follow(self._look() if self._distributed.is_chief else None)

    def _follow(self, found: tuple[int, bool] | None) -> bool:
        """Aim at what the chief has found, on all ranks."""
        found = self._distributed.broadcast(found)
        if found is None:
            return False
        amount, self.is_last = found
        self.target = Length(self.target.unit, amount)
        return True

    def _look(self) -> tuple[int, bool] | None:
        """Return the next target, or None when the run was asked to leave."""
        if self._page is None:
            return None
        pause_s, longest_s = _PAUSES_S
        while not self._page.is_raised("preempt"):
            found = self._page.target()
            if found is not None and found[0] > self.target.amount:
                return found
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)
        return None
