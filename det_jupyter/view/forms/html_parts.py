"""Parts of self-contained HTML that cards share: no script, no style sheet, no network."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from det_jupyter.contract.values.text import number, printable
from det_jupyter.view.forms.svg import COLORS, as_image, color, is_dashed, svg_chart
from det_jupyter.view.model.trial_state import Chart, ChartSeries

LINE = "rgba(128,128,128,.35)"
CARD = (
    f"border:1px solid {LINE};border-radius:4px;padding:10px 14px;max-width:960px;"
    "font:13px/1.5 system-ui,sans-serif;color:inherit"
)
QUIET = "opacity:.75;font-size:12px"
CHARTS = (
    "display:grid;grid-template-columns:repeat(auto-fit,minmax(min(280px,100%),1fr));"
    "gap:12px 20px;margin:10px 0"
)
# The width is bounded, because a single chart would be enlarged to twice its size.
_PICTURE = "width:100%;max-width:480px;height:auto;display:block"
_TABLE = "font:12px/1.5 system-ui,sans-serif;color:inherit;text-align:right;white-space:nowrap"
PRE = (
    f"overflow-x:auto;border:1px solid {LINE};border-radius:3px;padding:8px;margin:6px 0;"
    "font:12px/1.4 ui-monospace,monospace;background:transparent;color:inherit;white-space:pre"
)
CODE = "font:12px/1.4 ui-monospace,monospace;background:transparent;color:inherit"
REMARK = f"border-left:3px solid {COLORS[1]};padding:2px 10px;margin:6px 0"


def escaped(text: str) -> str:
    """Return text without control characters, escaped for HTML."""
    return escape(printable(text))


def prose(sentence: str) -> str:
    """Return a sentence as HTML; text between backticks becomes code.

    >>> prose("`det` > 1 `x")
    '<code style="font:12px/1.4 ui-monospace,monospace;background:transparent;color:inherit">\
det</code> &gt; 1 `x'
    """
    return re.sub("`([^`]+)`", rf'<code style="{CODE}">\1</code>', escaped(sentence))


def block(tag: str, text: str, style: str) -> str:
    """Return an HTML element that contains a text; "" if the text is empty."""
    return f'<{tag} style="{style}">{escaped(text)}</{tag}>' if text else ""


def chart_grid(charts: Sequence[Chart], no_metrics: str = "") -> str:
    """Return charts side by side, all up to the same step; `no_metrics` if there are none."""
    if not charts:
        return block("p", no_metrics, QUIET)
    last_step = max(series["steps"][-1] for chart in charts for series in chart["series"])
    body = "".join(_chart(chart, last_step) for chart in charts)
    return f'<div style="{CHARTS}">{body}</div>'


def _chart(chart: Chart, last_step: int) -> str:
    legend = "".join(
        f'<span style="margin-left:10px;display:inline-block">{_marker(series)} '
        f"{escaped(series['label'])} {number(series['last'])}</span>"
        for series in chart["series"]
        if not series["is_faint"]
    )
    svg = svg_chart(chart, last_step)
    alt = f"{chart['title']} by step"
    picture = as_image(svg, alt, _PICTURE) if svg else "<p>no finite value</p>"
    return (
        f'<div style="min-width:0"><div><b>{escaped(chart["title"])}</b>'
        f'<span style="{QUIET}">{legend}</span></div>{picture}</div>'
    )


def _marker(series: ChartSeries) -> str:
    shape = "●" if series["kind"] == "points" else ("╌" if is_dashed(series) else "━")
    return f'<span style="color:{color(series)}">{shape}</span>'


def details(title: str, body: str) -> str:
    return f'<details style="margin:4px 0"><summary>{escaped(title)}</summary>{body}</details>'


def html_table(head: list[str], rows: list[list[str]]) -> str:
    """Return a table of cells in HTML; the first column is aligned to the left."""

    def line(tag: str, cells: list[str]) -> str:
        first, *rest = cells
        others = "".join(f"<{tag}>{cell}</{tag}>" for cell in rest)
        return f'<tr><{tag} style="text-align:left">{first}</{tag}>{others}</tr>'

    body = "".join(line("td", row) for row in rows)
    return (
        f'<table style="{_TABLE}" cellpadding="4">'
        f"<thead>{line('th', head)}</thead><tbody>{body}</tbody></table>"
    )
