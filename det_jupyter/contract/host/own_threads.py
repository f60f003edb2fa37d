"""Marks the threads of this package in a rank, and reads the frames of any thread."""

from __future__ import annotations

import gc
import sys
import threading
from types import FrameType

_IS_OWN = "is_pydev_daemon_thread"
_looking = threading.Lock()


def start_own(thread: threading.Thread) -> None:
    """Start a daemon thread of this package in a rank.

    It has the mark with which ipykernel makes debuggers ignore a thread.
    """
    thread.daemon = True
    setattr(thread, _IS_OWN, True)
    thread.start()


def own_thread_ids() -> set[int]:
    """Return the native ids of the marked threads of this process."""
    return {t.native_id or 0 for t in threading.enumerate() if hasattr(t, _IS_OWN)}


def frame_of(thread: threading.Thread) -> FrameType | None:
    """Return the innermost frame of a thread of this process; None if it has ended.

    Python 3.11 locks its list of threads while it makes the frames. A garbage collection then may
    run a `__del__` that waits, as that of torch's loaders does; a thread that ends meanwhile waits
    for the list and keeps the GIL, so the process stops for ever
    (https://github.com/python/cpython/issues/106883).
    """
    with _looking:
        is_collecting = gc.isenabled()
        gc.disable()
        try:
            return sys._current_frames().get(thread.ident or 0)
        finally:
            if is_collecting:
                gc.enable()
