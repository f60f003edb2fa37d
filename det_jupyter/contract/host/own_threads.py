"""Threads of this package in a process of the user's: marked, so that they can be told apart."""

from __future__ import annotations

import threading

_IS_OWN = "is_pydev_daemon_thread"


def start_own(thread: threading.Thread) -> None:
    """Start a daemon thread of a rank that is no thread of the user's.

    It is marked as ipykernel marks those that debuggers leave alone.
    """
    thread.daemon = True
    setattr(thread, _IS_OWN, True)
    thread.start()


def own_thread_ids() -> set[int]:
    """Return the native ids of the marked threads of this process."""
    return {t.native_id or 0 for t in threading.enumerate() if hasattr(t, _IS_OWN)}
