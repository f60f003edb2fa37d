"""The journal of a rank: an append-only file with a line per record, without buffer or lock."""

from __future__ import annotations

import os
from pathlib import Path

from det_jupyter.records import Record, to_line


class Journal:
    """Appends records to a file. The operating system has a record when `write` returns."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def fileno(self) -> int:
        """Return the descriptor of the file."""
        return self._descriptor

    def write(self, record: Record) -> None:
        """Append one record. A reader may see a part of the last line."""
        data = memoryview(to_line(record).encode())
        while data:  # one write; a full disk or a signal may cut it short
            data = data[os.write(self._descriptor, data) :]
