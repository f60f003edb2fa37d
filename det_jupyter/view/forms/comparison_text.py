"""A comparison as lines of text, for terminals."""

from __future__ import annotations

from collections.abc import Sequence

from det_jupyter.view.model.comparison import ComparisonState, Side, Table
from det_jupyter.words import one_line, printable, shortened

MAX_LINES = 60  # of differences in code; `code_diff()` has all
_WIDTH = 28  # of a column


def comparison_text(state: ComparisonState) -> str:
    """Return the comparison in plain text."""
    parts = [one_line(state["title"]), *map(one_line, state["notes"])]
    for table in state["tables"]:
        parts += ["", *_table(table, state["sides"])]
    parts += ["", *_code(state)]
    return "\n".join(parts)


def side_heading(side: Side) -> str:
    """Return the heading of a column: the label, and the trial that stands for a search."""
    return f"{side['label']} ({side['note']})" if side["note"] else side["label"]


def _table(table: Table, sides: Sequence[Side]) -> list[str]:
    if not table["facts"]:
        return [f"{table['title']}: {table['empty']}"] if table["empty"] else []
    rows = [[table["title"], *map(side_heading, sides)]]
    for fact in table["facts"]:
        marked = [
            f"{value} *" if place in fact["best"] else value
            for place, value in enumerate(fact["values"])
        ]
        rows.append([f"  {fact['name']}", *marked])
    cells = [[row[0], *(shortened(cell, _WIDTH) for cell in row[1:])] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]
    has_best = any(fact["best"] for fact in table["facts"])
    return [*map(printable, lines), *(["  * the best"] if has_best else [])]


def _code(state: ComparisonState) -> list[str]:
    if not state["code"]:
        return [state["no_code"]]
    first, lines = state["sides"][0]["label"], []
    for difference in state["code"]:
        other = state["sides"][difference["side"]]["label"]
        lines += ["", f"{difference['name']}: {first} → {other}", *difference["lines"]]
    shown = [printable(line) for line in lines[1 : MAX_LINES + 1]]
    more = len(lines) - 1 - len(shown)
    return ["Code", *shown, *([f"… {more} more lines: code_diff() has all"] if more > 0 else [])]
