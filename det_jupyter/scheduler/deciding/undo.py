"""Undo log for trying changes in a pool."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class UndoLog:
    """Records the inverse of each change while changes are tried."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] | None = None

    def note(self, undo: Callable[[], object]) -> None:
        """Record the inverse of the change that was just made."""
        if self._undo is not None:
            self._undo.append(undo)

    @contextmanager
    def trying(self) -> Iterator[None]:
        """Undo all changes made within at the end, also after an error."""
        undo: list[Callable[[], object]] = []
        self._undo = undo
        try:
            yield
        finally:
            self._undo = None
            for take_back in reversed(undo):
                take_back()
