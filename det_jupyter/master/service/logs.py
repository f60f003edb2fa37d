"""The lines that ranks print, as rows: of each rank of a trial the newest are kept.

A rank that prints without end would fill the disk. What is cut is the oldest, a part at a time,
and a line in its place says how much that was; why a run failed is in the newest.
"""

from __future__ import annotations

import sqlite3

from det_jupyter.contract.run.output_lines import Printed, levels_of

MAX_LOG_BYTES = 32 * 1024 * 1024  # of each rank of a trial
_PART = 32  # the share that is cut at a time: some 20 ms
_ROW_BYTES = 40  # what a row takes besides its text
_OPEN = "trial_id = ? AND run = ? AND rank = ? AND is_open"


class Logs:
    """The tables `logs` and `log_sizes`; of each rank of a trial `max_bytes` are kept."""

    def __init__(self, db: sqlite3.Connection, max_bytes: int = MAX_LOG_BYTES) -> None:
        self._db = db
        self._max_bytes = max_bytes

    def open_line(self, *, trial_id: int, run: int, rank: int) -> str | None:
        """Return the line that a rank's next output rewrites, if there is one."""
        row: tuple[str] | None = self._db.execute(
            f"SELECT text FROM logs WHERE {_OPEN}", (trial_id, run, rank)
        ).fetchone()
        return row[0] if row else None

    def add(self, at: float, *, trial_id: int, run: int, rank: int, printed: Printed) -> None:
        """Append lines in the place of the open one, in a transaction; the oldest may go."""
        row = self._db.execute(
            "SELECT bytes, lines_cut FROM log_sizes WHERE trial_id = ? AND rank = ?",
            (trial_id, rank),
        ).fetchone()
        num_bytes, lines_cut = row or (0, 0)
        rewritten = self._db.execute(
            f"DELETE FROM logs WHERE {_OPEN} RETURNING length(text)", (trial_id, run, rank)
        ).fetchall()
        num_bytes -= sum(size + _ROW_BYTES for (size,) in rewritten)
        lines = printed.lines if printed.open is None else [*printed.lines, printed.open]
        closed = len(printed.lines)
        self._db.executemany(
            "INSERT INTO logs (at, trial_id, run, rank, text, level, is_open) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (at, trial_id, run, rank, line, level, index >= closed)
                for index, (line, level) in enumerate(zip(lines, levels_of(lines), strict=True))
            ],
        )
        num_bytes += sum(len(line) + _ROW_BYTES for line in lines)
        if num_bytes > self._max_bytes:
            num_bytes, lines_cut = self._cut(trial_id, rank, num_bytes, lines_cut)
        self._db.execute(
            "INSERT OR REPLACE INTO log_sizes VALUES (?, ?, ?, ?)",
            (trial_id, rank, num_bytes, lines_cut),
        )

    def _cut(self, trial_id: int, rank: int, num_bytes: int, lines_cut: int) -> tuple[int, int]:
        """Cut the oldest lines of a rank; return the new size, and how many were ever cut."""
        goal = self._max_bytes - self._max_bytes // _PART
        of_rank = "FROM logs WHERE trial_id = ? AND rank = ?"
        lines_cut -= lines_cut > 0  # the first row is the line that says how many
        oldest = self._db.execute(
            f"SELECT id, at, run, length(text) {of_rank} ORDER BY id", (trial_id, rank)
        )
        for row in oldest:
            last_id, at, run, size = row
            num_bytes -= size + _ROW_BYTES
            lines_cut += 1
            if num_bytes <= goal:
                break
        oldest.close()
        self._db.execute(f"DELETE {of_rank} AND id <= ?", (trial_id, rank, last_id))
        text = (
            f"… {lines_cut:,} lines were cut here: the newest {self._max_bytes / 2**20:.3g} MiB "
            "that a rank of a trial prints are kept"
        )
        self._db.execute(
            "INSERT INTO logs (id, at, trial_id, run, rank, text) VALUES (?, ?, ?, ?, ?, ?)",
            (last_id, at, trial_id, run, rank, text),
        )
        return num_bytes + len(text) + _ROW_BYTES, lines_cut
