"""What a user should know though the training goes on: shown on the trial, and in its output."""

from __future__ import annotations

import sys
import time

from det_jupyter.core import RecordSink
from det_jupyter.records import Notice


def give_notice(text: str, rank: int, sink: RecordSink) -> None:
    """Write a notice to the rank's journal, and to standard error.

    Args:
        text: In one line.
        rank: This one.
        sink: Its journal.
    """
    sink.write(Notice(at=time.time(), rank=rank, text=text))
    sys.stderr.write(f"{text}\n")
