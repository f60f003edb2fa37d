"""Where records go: into the journal of a rank, or a list outside of experiments."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from det_jupyter.contract.run.journal import Record, to_line


class RecordSink(Protocol):
    """Takes records, in order: the journal of a rank, or a list outside of experiments."""

    def write(self, record: Record) -> None:
        """Store the record before returning."""


class RecordList:
    """A RecordSink for scripts and notebooks."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def write(self, record: Record) -> None:
        """See RecordSink."""
        self.records.append(record)


class Journal:
    """The journal of a rank: an append-only file with a line per record, without buffer or lock.

    The operating system has a record when `write` returns.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def fileno(self) -> int:
        return self._descriptor

    def write(self, record: Record) -> None:
        """Append one record. A reader may see a part of the last line."""
        data = memoryview(to_line(record).encode())
        while data:  # one write; a full disk or a signal may cut it short
            data = data[os.write(self._descriptor, data) :]
