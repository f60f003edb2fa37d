"""What the loop calls after each batch."""

from __future__ import annotations

from collections.abc import Callable

from det_jupyter.pytorch.data import Share

Call = Callable[[Share], None]


class CallsAfterBatch:
    """Calls to make after each batch. They may add and remove calls, themselves too."""

    def __init__(self) -> None:
        self.all: tuple[Call, ...] = ()

    def add(self, call: Call) -> None:
        """Make this call after each batch."""
        self.all = (*self.all, call)

    def remove(self, call: Call) -> None:
        """Make it no longer."""
        self.all = tuple(known for known in self.all if known != call)
