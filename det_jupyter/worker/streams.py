"""Standard streams that are one thread's own, while all other threads keep theirs."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, TextIO


class StreamByThread:
    """A text stream that is `theirs` to one thread, and `ours` to all others."""

    def __init__(self, ours: TextIO, theirs: Any, thread_id: int) -> None:
        self._ours = ours
        self._theirs = theirs
        self._thread_id = thread_id

    def write(self, text: str) -> int:
        """Write to the calling thread's stream."""
        written: int = self._current().write(text)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._current(), name)

    def _current(self) -> Any:
        return self._theirs if threading.get_ident() == self._thread_id else self._ours


def split_streams(make: Callable[[str], Any]) -> None:
    """Give the calling thread standard streams of its own; those of all others stay."""
    thread_id = threading.get_ident()
    for name in ("stdout", "stderr"):
        ours = getattr(sys, name)
        setattr(sys, name, StreamByThread(ours, make(name), thread_id))
