"""A comparison as self-contained HTML: what a saved notebook keeps of it."""

from __future__ import annotations

from det_jupyter.view.forms.comparison_text import side_heading
from det_jupyter.view.forms.page import (
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
from det_jupyter.view.model.comparison import CodeDifference, ComparisonState, Fact, Table
from det_jupyter.words import count

_TITLE = "font-weight:600;margin:10px 0 2px"
_ADDED, _REMOVED = "#3f9b57", "#c9574f"
_OPEN_LINES = 40  # differences of more lines are shown on demand


def comparison_html(state: ComparisonState) -> str:
    """Return the comparison as a card."""
    parts = [
        block("div", state["title"], "font-size:15px;font-weight:600"),
        *(block("div", note, REMARK) for note in state["notes"]),
        chart_grid(state["charts"]) if state["charts"] else block("p", state["no_metrics"], QUIET),
        _more(state),
        *(_table(table, state) for table in state["tables"]),
        _code(state),
    ]
    return f'<div style="{CARD}">{"".join(parts)}</div>'


def _more(state: ComparisonState) -> str:
    names = state["more_metrics"]
    if not names:
        return ""
    return block("div", f"{count(len(names), 'more metric')}: {', '.join(names)}", QUIET)


def _table(table: Table, state: ComparisonState) -> str:
    if not table["facts"]:
        return block("div", table["empty"], QUIET)
    head = [escaped(table["title"]), *(escaped(side_heading(side)) for side in state["sides"])]
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
        body = _diff(difference)
        parts.append(details(title, body) if is_long else block("div", title, QUIET) + body)
    return "".join(parts)


def _diff(difference: CodeDifference) -> str:
    lines = "\n".join(map(_line, difference["lines"]))
    return f'<pre style="{PRE}">{lines}</pre>'


def _line(line: str) -> str:
    """Return a line of a unified diff; its sign says the same as its colour."""
    color = {"+": _ADDED, "-": _REMOVED}.get(line[:1])
    is_file = line.startswith(("+++", "---"))
    text = escaped(line)
    return text if color is None or is_file else f'<span style="color:{color}">{text}</span>'
