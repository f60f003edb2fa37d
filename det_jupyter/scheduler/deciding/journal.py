"""How to take back what is tried in a pool."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Journal:
    """Notes the inverse of each change, while something is tried."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] | None = None

    def note(self, undo: Callable[[], object]) -> None:
        """Note what takes back the change that was just made."""
        if self._undo is not None:
            self._undo.append(undo)

    @contextmanager
    def trying(self) -> Iterator[None]:
        """Take back at the end, also after an error, all that is changed within."""
        undo: list[Callable[[], object]] = []
        self._undo = undo
        try:
            yield
        finally:
            self._undo = None
            for take_back in reversed(undo):
                take_back()
