"""Splits the output of a rank into lines, as a terminal would show them, and finds their levels.

A progress bar rewrites its line after a carriage return (tqdm); several bars also move the cursor
up (`ESC [A`). Only the last state is kept. If a part of the output does not end with a line end,
its last line is *open*: the next part may rewrite it. Escape sequences are removed, other control
characters are replaced.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from det_jupyter.contract.messages import LEVELS, Level
from det_jupyter.contract.values.text import CONTROLS, printable

MAX_LINE = 8192  # length to which lines are cut, in characters
_TAIL_BYTES = 64 * 1024
_MAX_OPEN = 20  # most rows of an open line, one for each progress bar shown at the same time
_MOVES = re.compile(r"(\n|\r|\x1b\[[0-9]{0,3}A)")


class OutputLines(NamedTuple):
    """Complete lines, and the open one; with several progress bars it has several rows."""

    lines: list[str]
    open: str | None


def parse_printed(text: str, before: str | None = None) -> OutputLines:
    """Return the lines of an output as a terminal would show them, cut to `MAX_LINE`.

    Args:
        text: A part of an output; unless it ends with a line end, its last line is open.
        before: The open line of the part before it.
    """
    if before is None and CONTROLS.search(text) is None:
        return OutputLines([_cut(line) for line in text.removesuffix("\n").split("\n")], None)
    rows, row = _rows_on_terminal(text, before)
    rows = [_cut(printable(line)) for line in rows]
    if text.endswith("\n"):
        while len(rows) > row and not rows[-1].strip():  # a cleared bar, or an empty last row
            rows.pop()
        return OutputLines(rows, None)
    first = max(row, len(rows) - _MAX_OPEN)
    return OutputLines(rows[:first], "\n".join(rows[first:]))


def read_end(output: Path) -> str:
    """Return the last 64 KiB of a rank's output; "" if the file cannot be read."""
    try:
        with output.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""


def last_lines(text: str, num: int, *, most: int) -> str:
    """Return the last `num` lines of an output, each cut to `most` characters.

    >>> last_lines("one\\n 10%\\r 20%\\ntwo\\n\\n", 2, most=3)
    ' 20\\ntwo'
    """
    lines = parse_printed(text.rstrip() + "\n").lines[-num:]
    return "\n".join(line[:most] for line in lines).strip("\n")


def _rows_on_terminal(text: str, before: str | None) -> tuple[list[str], int]:
    """Return the rows that a terminal shows after `text`, and the index of the cursor's row."""
    rows = (before or "").split("\n")
    row, is_at_start = 0, before is not None
    for part in _MOVES.split(text):
        if part == "\n":
            row += 1
            is_at_start = row < len(rows)
            if not is_at_start:
                rows.append("")
        elif part == "\r":
            is_at_start = True
        elif part.startswith("\x1b[") and part.endswith("A") and _MOVES.fullmatch(part):
            row = max(0, row - int(part[2:-1] or 1))
        elif part:
            rows[row] = part if is_at_start else rows[row] + part
            is_at_start = False
    return rows, row


def _cut(line: str) -> str:
    return line if len(line) <= MAX_LINE else line[:MAX_LINE] + "…"


# A level as Python's logging, loguru, rich, NCCL and others print it, near the start of a line.
_WORD = re.compile(r"(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)(?=[\s\])|:,-]|$)")
_NEAR = 120
_BEFORE_A_WORD = frozenset(" \t[(|:-")
# Levels in lower case; glog's letter, as PyTorch prints it; tracebacks; warnings.warn.
_LEVEL = re.compile(
    r"\[?(?P<small>debug|info|warning|error|critical|fatal) *[\]:]"
    r"|(?:\[rank\d+\]:)?\[?(?P<letter>[IWEF])\d{4} \d\d:\d\d:\d\d"
    r"|(?P<start>(?:\[rank\d+\]: ?)?Traceback \(most recent call last\):|Fatal Python error: )"
    r"|(?P<error>[\w.]*(?:Error|Exception|KeyboardInterrupt|Exit)(?=:|$))"
    r"|.{1,200}:\d+: (?P<warning>\w*Warning): "
)
_WORDS: dict[str, Level] = {
    "D": "debug",
    "I": "info",
    "W": "warning",
    "E": "error",
    "F": "critical",
    "C": "critical",
}


def levels_of(lines: Sequence[str]) -> Iterator[int]:
    """Yield the number of each line's level (LEVELS), 0 if none is recognised.

    All lines of a traceback have the level of its first line.
    """
    inside = 0
    for line in lines:
        if inside and (line[:1].isspace() or not line):
            yield inside
            continue
        found = _LEVEL.match(line)
        level = LEVELS[_level_of(found)] if found is not None else _level_by_word(line)
        yield max(level, inside)
        inside = level if found is not None and found["start"] else 0


def _level_by_word(line: str) -> int:
    for found in _WORD.finditer(line, 0, _NEAR):
        if found.start() == 0 or line[found.start() - 1] in _BEFORE_A_WORD:
            return LEVELS[_WORDS[found[0][0]]]
    return 0


def _level_of(found: re.Match[str]) -> Level:
    if found["start"] or found["error"]:
        return "error"
    if found["warning"]:
        return "warning"
    word: str = found["small"] or found["letter"]
    return _WORDS[word[0].upper()]
