"""Where records are stored: in the journal of a rank, or in a list outside of experiments."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from det_jupyter.contract.run.journal import Record, to_line


class RecordSink(Protocol):
    """Stores records in order: the journal of a rank, or a list outside of experiments."""

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

    Once `write` returns, the record survives the end of this process.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def fileno(self) -> int:
        return self._descriptor

    def write(self, record: Record) -> None:
        """Append one record. A reader may get the last line incomplete."""
        data = memoryview(to_line(record).encode())
        while data:  # usually one write; a full disk or a signal may shorten it
            data = data[os.write(self._descriptor, data) :]
