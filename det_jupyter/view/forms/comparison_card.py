"""Formats a comparison as self-contained HTML and as plain text."""

from __future__ import annotations

from collections.abc import Sequence

from det_jupyter.contract.values.text import count, one_line, printable, shortened
from det_jupyter.view.forms.html_parts import (
    CARD,
    PRE,
    QUIET,
    REMARK,
    block,
    chart_grid,
    details,
    escaped,
    html_table,
)
from det_jupyter.view.model.comparison import ComparisonState, Fact, FactTable, Side

_TITLE = "font-weight:600;margin:10px 0 2px"
_ADDED, _REMOVED = "#3f9b57", "#c9574f"
_OPEN_LINES = 40  # longer differences are folded
_MAX_LINES = 60  # lines of code differences in plain text; `code_diff()` has all
_WIDTH = 28  # characters of a column in plain text


def comparison_html(state: ComparisonState) -> str:
    """Return the comparison as a self-contained card."""
    more = state["more_metrics"]
    left_out = f"{count(len(more), 'more metric')}: {', '.join(more)}" if more else ""
    parts = [
        block("div", state["title"], "font-size:15px;font-weight:600"),
        *(block("div", note, REMARK) for note in state["notes"]),
        chart_grid(state["charts"], state["no_metrics"]),
        block("div", left_out, QUIET),
        *(_table(table, state) for table in state["tables"]),
        _code(state),
    ]
    return f'<div style="{CARD}">{"".join(parts)}</div>'


def _table(table: FactTable, state: ComparisonState) -> str:
    if not table["facts"]:
        return block("div", table["empty"], QUIET)
    head = [escaped(table["title"]), *(escaped(_heading(side)) for side in state["sides"])]
    rows = [[escaped(fact["name"]), *_values(fact)] for fact in table["facts"]]
    return f'<div style="overflow-x:auto;margin:6px 0">{html_table(head, rows)}</div>'


def _values(fact: Fact) -> list[str]:
    return [
        f"<b>{escaped(value)} ★</b>" if place in fact["best"] else escaped(value)
        for place, value in enumerate(fact["values"])
    ]


def _code(state: ComparisonState) -> str:
    if not state["code"]:
        return block("div", state["no_code"], QUIET)
    first = state["sides"][0]["label"]
    parts = [block("div", "Code", _TITLE)]
    for difference in state["code"]:
        other = state["sides"][difference["side"]]["label"]
        title = f"{difference['name']}: {first} → {other}"
        is_long = sum(len(one["lines"]) for one in state["code"]) > _OPEN_LINES
        lines = "\n".join(map(_line, difference["lines"]))
        body = f'<pre style="{PRE}">{lines}</pre>'
        parts.append(details(title, body) if is_long else block("div", title, QUIET) + body)
    return "".join(parts)


def _line(line: str) -> str:
    """Return a line of a unified diff as HTML, coloured by its sign."""
    color = {"+": _ADDED, "-": _REMOVED}.get(line[:1])
    is_file = line.startswith(("+++", "---"))
    text = escaped(line)
    return text if color is None or is_file else f'<span style="color:{color}">{text}</span>'


def comparison_text(state: ComparisonState) -> str:
    """Return the comparison as plain text."""
    parts = [one_line(state["title"]), *map(one_line, state["notes"])]
    for table in state["tables"]:
        parts += ["", *_text_table(table, state["sides"])]
    parts += ["", *_text_code(state)]
    return "\n".join(parts)


def _heading(side: Side) -> str:
    """Return a column's heading: the label, and the trial that represents a search."""
    return f"{side['label']} ({side['note']})" if side["note"] else side["label"]


def _text_table(table: FactTable, sides: Sequence[Side]) -> list[str]:
    if not table["facts"]:
        return [f"{table['title']}: {table['empty']}"] if table["empty"] else []
    rows = [[table["title"], *map(_heading, sides)]]
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


def _text_code(state: ComparisonState) -> list[str]:
    if not state["code"]:
        return [state["no_code"]]
    first, lines = state["sides"][0]["label"], []
    for difference in state["code"]:
        other = state["sides"][difference["side"]]["label"]
        lines += ["", f"{difference['name']}: {first} → {other}", *difference["lines"]]
    shown = [printable(line) for line in lines[1 : _MAX_LINES + 1]]
    more = len(lines) - 1 - len(shown)
    return ["Code", *shown, *([f"… {more} more lines: code_diff() has all"] if more > 0 else [])]
