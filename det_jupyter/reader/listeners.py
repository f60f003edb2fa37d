"""Callbacks of a source that runs only while there is at least one of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Listeners(Generic[P]):
    """A set of callbacks. Thread-safe.

    Args:
        start: Starts the source; called when the first callback is added. It returns a function
            that stops the source, which is called when the last callback is removed.
    """

    def __init__(self, start: Callable[[], Callable[[], None]]) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._all: list[Callable[P, None]] = []

    def add(self, listener: Callable[P, None]) -> Callable[[], None]:
        """Add a callback; return an idempotent function that removes it."""
        with self._lock:
            self._all = [*self._all, listener]
            if len(self._all) == 1:
                try:
                    self._stop = self._start()
                except BaseException:  # an interrupt too: the next callback starts the source
                    self._all = []
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
        """Call all callbacks in the caller's thread, also after one has raised.

        Raises:
            Exception: The first that a callback has raised.
        """
        errors: list[Exception] = []
        for listener in self._all:
            try:
                listener(*args, **kwargs)
            except Exception as error:  # the first one is raised after the last callback
                errors.append(error)
        if errors:
            raise errors[0]
