"""Stores the lines that ranks print, and answers requests for them.

At most MAX_LOG_BYTES are stored for each rank of a trial, because a rank that prints without end
would fill the disk. The oldest lines are deleted, some at a time, and a line in their place
contains their number; the newest are kept, because they show why a run failed.

Requests are answered in a thread of their own (`read_page`). The index `logs_found` has all
columns by which lines are selected, except for agent and text. So the last matching lines are
found, and all are counted, without reading the lines, unless the request has one of these two:

    rank, level, time       a million lines in the index: tens of milliseconds
    agent, text             all lines are read: a few tenths of a second

A search has a time limit, because a regular expression may take unbounded time.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import regex

from det_jupyter.contract.messages import LEVELS, MAX_LINES, LogLine, LogPage, LogQuery
from det_jupyter.contract.run.output_lines import OutputLines, levels_of
from det_jupyter.errors import ConfigError, Problem
from det_jupyter.master.service.storing.log_patterns import find_regex_problem
from det_jupyter.master.service.storing.stored_rows import read_only

MAX_LOG_BYTES = 32 * 1024 * 1024  # limit for each rank of a trial
_CUT = 32  # this fraction (1/32) of a log is deleted at a time, which takes about 20 ms
ROW_BYTES = 40  # size of a row without its text; `log_sizes` counts it too
_OPEN = "trial_id = ? AND run = ? AND rank = ? AND is_open"
SEARCH_S = 10.0  # time limit for finding lines
COUNT_S = 2.0  # time limit for counting them
_STEPS = 100_000  # instructions of SQLite between two checks of the time
_TIMEOUT_ERRORS = ("interrupted", "user-defined function raised exception")
_NAMES = {number: level for level, number in LEVELS.items()}
_FIELDS = ("id", "at", "trial_id", "run", "rank", "text", "level", "is_open", "agent")


class Logs:
    """The tables `logs` and `log_sizes`; `max_bytes` are kept for each rank of a trial."""

    def __init__(self, db: sqlite3.Connection, max_bytes: int = MAX_LOG_BYTES) -> None:
        self._db = db
        self._max_bytes = max_bytes

    def open_line(self, *, trial_id: int, run: int, rank: int) -> str | None:
        """Return the rank's last line if it is open (its next output rewrites it), else None."""
        row: tuple[str] | None = self._db.execute(
            f"SELECT text FROM logs WHERE {_OPEN}", (trial_id, run, rank)
        ).fetchone()
        return row[0] if row else None

    def add(
        self,
        at: float,
        *,
        trial_id: int,
        run: int,
        rank: int,
        printed: OutputLines,
        agent: str = "",
    ) -> None:
        """Append lines, replacing the open line; may delete the oldest lines. In a transaction."""
        row = self._db.execute(
            "SELECT bytes, lines_cut FROM log_sizes WHERE trial_id = ? AND rank = ?",
            (trial_id, rank),
        ).fetchone()
        num_bytes, lines_cut = row or (0, 0)
        rewritten = self._db.execute(
            f"DELETE FROM logs WHERE {_OPEN} RETURNING length(text)", (trial_id, run, rank)
        ).fetchall()
        num_bytes -= sum(size + ROW_BYTES for (size,) in rewritten)
        lines = printed.lines if printed.open is None else [*printed.lines, printed.open]
        closed = len(printed.lines)
        self._db.executemany(
            "INSERT INTO logs (at, trial_id, run, rank, text, level, is_open, agent) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (at, trial_id, run, rank, line, level, index >= closed, agent)
                for index, (line, level) in enumerate(zip(lines, levels_of(lines), strict=True))
            ],
        )
        num_bytes += sum(len(line) + ROW_BYTES for line in lines)
        if num_bytes > self._max_bytes:
            num_bytes, lines_cut = self._cut(trial_id, rank, num_bytes, lines_cut)
        self._db.execute(
            "INSERT OR REPLACE INTO log_sizes VALUES (?, ?, ?, ?)",
            (trial_id, rank, num_bytes, lines_cut),
        )

    def _cut(self, trial_id: int, rank: int, num_bytes: int, lines_cut: int) -> tuple[int, int]:
        """Delete the oldest lines of a rank; return its new size and number of deleted lines."""
        goal = self._max_bytes - self._max_bytes // _CUT
        of_rank = "FROM logs WHERE trial_id = ? AND rank = ?"
        lines_cut -= lines_cut > 0  # the first row is the line with that number
        oldest = self._db.execute(
            f"SELECT id, at, run, length(text) {of_rank} ORDER BY id", (trial_id, rank)
        )
        for row in oldest:
            last_id, at, run, size = row
            num_bytes -= size + ROW_BYTES
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
        return num_bytes + len(text) + ROW_BYTES, lines_cut


def read_page(path: Path, trial_ids: Sequence[int], query: LogQuery, *, is_over: bool) -> LogPage:
    """Return the lines of these trials that match the query.

    Args:
        is_over: Whether no further lines will be printed; passed on to the page.

    Raises:
        ConfigError: The regular expression is not valid, or takes too long.
    """
    with read_only(path) as db:
        which, values = _conditions(db, trial_ids, query)
        newest: int = db.execute("SELECT coalesce(max(id), 0) FROM logs").fetchone()[0]
        num = MAX_LINES if query.tail is None else min(MAX_LINES, max(0, query.tail))
        order = "ASC" if query.tail is None else "DESC"
        rows = _execute_within(
            db,
            SEARCH_S,
            f"SELECT {', '.join(_FIELDS)} FROM logs WHERE id IN "
            f"(SELECT id FROM logs WHERE {which} ORDER BY id {order} LIMIT ?) ORDER BY id",
            (*values, num),
        )
        if rows is None:
            raise ConfigError(
                Problem(
                    "search",
                    f"{query.search} took more than {SEARCH_S:g} s; search for a text "
                    "without slashes, or in fewer lines (trial, rank, since)",
                )
            )
        lines = []
        for row in rows:
            given = dict(zip(_FIELDS, row, strict=True))
            level, is_open = _NAMES.get(given["level"]), bool(given["is_open"])
            lines.append(LogLine(**{**given, "level": level, "is_open": is_open}))
        has_more = query.tail is None and len(lines) == num
        total: int | None = len(lines)
        if len(lines) == num:
            counted = _execute_within(
                db, COUNT_S, f"SELECT count(*) FROM logs WHERE {which}", values
            )
            total = counted[0][0] if counted is not None else None
        last_id = lines[-1].id if has_more else max(newest, query.after)
        return LogPage(lines=lines, total=total, last_id=last_id, is_over=is_over)


def _conditions(
    db: sqlite3.Connection, trial_ids: Sequence[int], query: LogQuery
) -> tuple[str, list[Any]]:
    """Return the WHERE clause of a query and its values."""
    values: list[Any] = [*trial_ids, query.after]
    parts = ["trial_id = ?", "id > ?"]  # in the order of the index: nothing is sorted
    if len(trial_ids) != 1:
        parts[0] = "trial_id IN (SELECT value FROM json_each(?))"
        values[:-1] = [json.dumps(list(trial_ids))]
    if query.rank is not None:
        parts.append("rank = ?")
        values.append(query.rank)
    if query.agent is not None:
        parts.append("agent = ?")
        values.append(query.agent)
    if query.level is not None:
        parts.append("level >= ?")
        values.append(LEVELS[query.level])
    if query.since is not None:
        parts.append("at >= ?")
        values.append(query.since)
    if query.search:
        condition, value = _text_condition(db, query.search)
        parts.append(condition)
        values += value
    return " AND ".join(parts), values


def _text_condition(db: sqlite3.Connection, search: str) -> tuple[str, list[str]]:
    if len(search) > 2 and search.startswith("/") and search.endswith("/"):
        pattern = _compiled(search[1:-1])
        deadline = time.monotonic() + SEARCH_S

        def fits(text: str) -> bool:
            left_s = max(0.001, deadline - time.monotonic())
            return pattern.search(text, timeout=left_s) is not None

        db.create_function("fits", 1, fits)
        return "fits(text)", []
    escaped = "".join(f"\\{char}" if char in "\\%_" else char for char in search)
    return "text LIKE ? ESCAPE '\\'", [f"%{escaped}%"]


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> regex.Pattern[str]:
    if problem := find_regex_problem(pattern):
        raise ConfigError(
            Problem("search", f"got /{pattern}/, expected a regular expression ({problem})")
        )
    return regex.compile(pattern)


def _execute_within(
    db: sqlite3.Connection, budget_s: float, query: str, values: Sequence[Any]
) -> list[Any] | None:
    """Return the rows of a query; None if it exceeds the time limit."""
    deadline = time.monotonic() + budget_s
    db.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
    try:
        return db.execute(query, values).fetchall()
    except sqlite3.OperationalError as error:
        if any(sign in str(error) for sign in _TIMEOUT_ERRORS):
            return None
        raise
    finally:
        db.set_progress_handler(None, 0)
