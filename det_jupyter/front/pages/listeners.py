"""Who wants to hear of something: the first one starts it, the last one stops it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Listeners(Generic[P]):
    """Functions to be called; for any thread.

    Args:
        start: Called before the first one is there; what it returns is called after the last
            one has left.
    """

    def __init__(self, start: Callable[[], Callable[[], None]]) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._all: list[Callable[P, None]] = []

    def add(self, listener: Callable[P, None]) -> Callable[[], None]:
        """Call it from now on; return what ends that, which is safe to call twice."""
        with self._lock:
            self._all = [*self._all, listener]
            if len(self._all) == 1:
                self._stop = self._start()
        return partial(self._remove, listener)

    def _remove(self, listener: Callable[P, None]) -> None:
        with self._lock:
            if listener in self._all:
                self._all = [other for other in self._all if other != listener]
                if not self._all:
                    self._stop()

    @property
    def is_idle(self) -> bool:
        return not self._all

    def tell(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for listener in self._all:
            listener(*args, **kwargs)
