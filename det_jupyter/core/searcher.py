"""The target of a run: how far it trains, and the search's answer when it is reached.

The plan of the run has the target. If the run does not end there, it reports that it has reached
it, and waits in its slots. The answer is a word of the control page, within milliseconds: a
farther target for a promoted trial, which continues at once, or the request to leave.
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
        is_last: Whether the run ends there.
        page: The chief's control page; None on other ranks and outside of experiments.
        distributed: The ranks.
        sink: Gets the chief's report that the target is reached.
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
        """Report that the trial has trained, validated and saved up to its target."""
        if self._distributed.is_chief:
            self._sink.write(
                TargetReached(
                    at=time.time(),
                    steps_completed=checked_steps(steps_completed),
                    target=self.target,
                )
            )

    def was_extended(self) -> bool:
        """Take over a farther `target` if there is one, and return whether; does not wait.

        Collective: all ranks must call it.
        """
        page = self._page
        found = page.target() if page is not None else None
        return self._follow(found if found and found[0] > self.target.amount else None)

    def await_next(self) -> bool:
        """Wait for a farther `target` (True) or the request to leave (False).

        Collective: all ranks must call it.
        """
        return self._follow(self._look() if self._distributed.is_chief else None)

    def _follow(self, found: tuple[int, bool] | None) -> bool:
        """Take over the chief's target on all ranks."""
        found = self._distributed.broadcast(found)
        if found is None:
            return False
        amount, self.is_last = found
        self.target = Length(self.target.unit, amount)
        return True

    def _look(self) -> tuple[int, bool] | None:
        """Return the next target, or None if the run was asked to leave."""
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
