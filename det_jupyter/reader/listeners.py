"""Callbacks of something that runs only while it has at least one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Listeners(Generic[P]):
    """A set of callbacks. Thread-safe.

    Args:
        start: Called when the first callback is added. It returns a function that is called when
            the last one is removed.
    """

    def __init__(self, start: Callable[[], Callable[[], None]]) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._all: list[Callable[P, None]] = []

    def add(self, listener: Callable[P, None]) -> Callable[[], None]:
        """Add a callback; return a function that removes it. That function is idempotent."""
        with self._lock:
            self._all = [*self._all, listener]
            if len(self._all) == 1:
                try:
                    self._stop = self._start()
                except BaseException:
                    self._all = []  # else no later one would start it
                    raise

        def remove() -> None:
            with self._lock:
                if listener in self._all:
                    self._all = [other for other in self._all if other != listener]
                    if not self._all:
                        self._stop()

        return remove

    @property
    def is_idle(self) -> bool:
        return not self._all

    def notify(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call all callbacks, in the caller's thread; one that raises keeps no other from it.

        Raises:
            Exception: The first that one has raised.
        """
        errors: list[Exception] = []
        for listener in self._all:
            try:
                listener(*args, **kwargs)
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
