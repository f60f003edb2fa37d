"""The request to save and leave: a word of the control page; outside of experiments never set."""

from __future__ import annotations

from det_jupyter.control import ControlPage
from det_jupyter.core.distributed import DistributedContext


class PreemptContext:
    """Whether this run was asked to save its state and leave."""

    def __init__(self, page: ControlPage | None, distributed: DistributedContext) -> None:
        self._page = page
        self._distributed = distributed
        self._is_acknowledged = False

    @property
    def is_acknowledged(self) -> bool:
        """Whether this rank has noticed the request: if it ends now, its trial continues later."""
        return self._is_acknowledged

    def was_asked(self) -> bool:
        """Return whether the agent has asked, on the chief; other ranks return False."""
        return self._page is not None and self._page.is_raised("preempt")

    def should_preempt(self) -> bool:
        """Return whether to save the state and leave: the same answer on all ranks.

        Collective: all ranks must call it in step, and it costs a broadcast.
        """
        is_asked = self._distributed.broadcast(self.was_asked())
        self._is_acknowledged |= is_asked
        return is_asked

    def acknowledge_preemption_signal(self) -> None:
        """Note that this rank leaves because of the request, as `should_preempt` does itself."""
        self._is_acknowledged = True
