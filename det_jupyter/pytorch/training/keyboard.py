"""Ctrl-C, or a notebook's stop button, during a training in this process: save, then leave.

After the first interrupt the loop finishes its batch and saves, and then KeyboardInterrupt is
raised. A second one raises at once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from det_jupyter.contract.run.journal import CheckpointSaved
from det_jupyter.core import Context


@contextmanager
def leaving_on_interrupt(core: Context, *, is_kept: bool = True) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether it was interrupted; the loop calls it between batches.

    In a rank of an experiment, and outside of the main thread, interrupts are left alone.
    Processes that are forked in the block, such as loader workers, ignore them: this one ends
    them.

    Args:
        core: Of this process.
        is_kept: The checkpoints remain, so that the training can continue.

    Raises:
        KeyboardInterrupt: After the block, if it was interrupted; says how to continue.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if core.info is not None or not is_main:
        yield lambda: False
        return
    interrupts = 0
    previous: Any = signal.getsignal(signal.SIGINT)
    process = os.getpid()

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal interrupts
        if os.getpid() != process:
            return
        interrupts += 1
        if interrupts > 1:
            raise KeyboardInterrupt
        what = "the batch and saving" if is_kept else "the batch"
        sys.stderr.write(f"interrupted: finishing {what}; again to stop at once\n")

    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: interrupts > 0
    finally:
        signal.signal(signal.SIGINT, previous)
    if interrupts:
        raise KeyboardInterrupt(_how_to_go_on(core) if is_kept else "the training was interrupted")


def _how_to_go_on(core: Context) -> str:
    records = getattr(core.sink, "records", [])
    saved = [record for record in records if isinstance(record, CheckpointSaved)]
    if not saved:
        return "the training was interrupted"
    last = saved[-1]
    return (
        f"the training was interrupted after batch {last.steps_completed}; "
        f"fit(latest_checkpoint={last.uuid!r}) goes on"
    )
