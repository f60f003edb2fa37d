"""Where records are stored: in the journal of a rank, or in a list outside of experiments."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol, Self

from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.run.journal import RankFailure, Record, to_line
from det_jupyter.contract.run.room import RoomGate


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

    Args:
        path: The file.
        gate: Holds up the writer while the disk is full; None: a full disk is an error.
    """

    def __init__(self, path: Path, gate: RoomGate | None = None) -> None:
        self.gate = gate
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    @classmethod
    def of_run(cls, folder: RunDir, rank: int) -> Self:
        """Return the journal of a rank of a run."""
        return cls(folder.journal(rank), RoomGate(folder.path, folder.control))

    def fileno(self) -> int:
        return self._descriptor

    @property
    def is_closed(self) -> bool:
        return self._descriptor < 0

    def close(self) -> None:
        """Close the file; nothing can be written any more."""
        if not self.is_closed:
            os.close(self._descriptor)
            self._descriptor = -1

    def write(self, record: Record) -> None:
        """Append one record. A reader may get the last line incomplete.

        Waits while the disk is full (room.py), except for the record of a failure.
        """
        data = memoryview(to_line(record).encode())
        gate = None if isinstance(record, RankFailure) else self.gate
        if gate is not None:
            gate.await_room_for_record()
        while data:  # usually one write; a full disk or a signal may shorten it
            try:
                data = data[os.write(self._descriptor, data) :]
            except OSError as error:
                if gate is None:
                    raise
                gate.await_room_after(error)
