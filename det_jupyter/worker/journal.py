"""The rank's journal: an append-only file, a line per record, no buffer, thread or lock."""

from __future__ import annotations

import os
from pathlib import Path

from det_jupyter.records import Record, to_line


class Journal:
    """Appends records to a file. A record is the kernel's when `write` returns."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, record: Record) -> None:
        """Append one record; a reader sees whole lines, or a part of the last one."""
        data = memoryview(to_line(record).encode())
        while data:  # a single write all but always: only a full disk or a signal cuts it short
            data = data[os.write(self._descriptor, data) :]
