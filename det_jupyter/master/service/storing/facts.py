"""Facts that views need in addition to the machine's state: the table `facts`, with one row.

They are stored so that the reader, another process, makes the same views as the master.
"""

from __future__ import annotations

import sqlite3

from pydantic import ValidationError

from det_jupyter.contract.messages import DiskStatus, Wire


class HostFacts(Wire):
    """Facts about this computer and its clusters."""

    cluster_notes: dict[str, str] = {}  # by cluster: a sentence on why it provides no more slots
    disks: list[DiskStatus] = []  # disks that are full, or will soon be full

    @property
    def rounded(self) -> object:
        """The facts, with numbers of disks rounded to one digit, to be compared."""
        disks = [
            (one.agent_id, one.folder, one.state, _digit(one.free_bytes), _digit(one.full_in_s))
            for one in self.disks
        ]
        return self.cluster_notes, disks


def _digit(number: float | None) -> str:
    return "" if number is None else f"{number:.0e}"


class StoredFacts:
    """The table `facts`."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._read = ("", HostFacts())  # text and content of the last read

    def get(self) -> HostFacts:
        row = self._db.execute("SELECT json FROM facts").fetchone()
        text = row[0] if row else ""
        if text != self._read[0]:
            try:
                self._read = (text, HostFacts.model_validate_json(text))
            except ValidationError:  # the next change replaces it
                self._read = (text, HostFacts())
        return self._read[1]

    def set(self, facts: HostFacts) -> None:
        self._db.execute("INSERT OR REPLACE INTO facts VALUES (1, ?)", (facts.model_dump_json(),))
