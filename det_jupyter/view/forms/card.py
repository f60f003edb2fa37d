"""The view as self-contained HTML: no script, no style sheet, no network.

A notebook shows it without a kernel, on GitHub, or where widgets do not work. Where styles and
pictures are removed too, its tables still have everything. Text has the colour of the page.
"""

from __future__ import annotations

from html import escape

from det_jupyter.view.forms import lines
from det_jupyter.view.forms.rungs import rung_sentences, svg_rungs
from det_jupyter.view.forms.svg import COLORS, color, is_dashed, svg_chart
from det_jupyter.view.model.cluster import Wait
from det_jupyter.view.model.experiment import (
    Chart,
    Failure,
    Rank,
    Search,
    Series,
    Status,
    Trial,
    ViewState,
)
from det_jupyter.words import count, number, percent, printable, size

_LINE = "rgba(128,128,128,.35)"
_CARD = (
    f"border:1px solid {_LINE};border-radius:4px;padding:10px 14px;max-width:960px;"
    "font:13px/1.5 system-ui,sans-serif;color:inherit"
)
_BADGE = "border:1px solid currentColor;border-radius:10px;padding:1px 9px;white-space:nowrap"
_TRACK = f"height:6px;border-radius:3px;background:{_LINE};margin:8px 0 4px"
_FILL = f"height:6px;border-radius:3px;background:{COLORS[0]};width:"
_QUIET = "opacity:.75;font-size:12px"
_CHARTS = (
    "display:grid;grid-template-columns:repeat(auto-fit,minmax(min(280px,100%),1fr));"
    "gap:12px 20px;margin:10px 0"
)
_TABLE = "font:12px/1.5 system-ui,sans-serif;color:inherit"
_CELL = "text-align:right;padding:1px 10px;white-space:nowrap"
_PRE = (
    f"overflow-x:auto;border:1px solid {_LINE};border-radius:3px;padding:8px;margin:6px 0;"
    "font:12px/1.4 ui-monospace,monospace;background:transparent;color:inherit;white-space:pre"
)
_CODE = "font:12px/1.4 ui-monospace,monospace;background:transparent;color:inherit"
_ALARM = "border-left:3px solid #d9534f;padding:2px 10px;margin:8px 0"
_REMARK = f"border-left:3px solid {COLORS[1]};padding:2px 10px;margin:6px 0"
_CHIP = (
    f"border:1px solid {_LINE};border-radius:3px;padding:1px 8px;margin:2px 6px 2px 0;"
    "display:inline-block"
)

_SHAPES: dict[Status, str] = {
    "queued": "○",
    "starting": "◔",
    "running": "▶",
    "pausing": "◑",
    "paused": "❚❚",
    "resting": "☾",
    "stopping": "◑",
    "completed": "✔",
    "stopped": "◼",
    "canceled": "⊘",
    "failed": "✖",
}


def render_html(state: ViewState) -> str:
    """Return the experiment as a self-contained card."""
    parts = [
        _header(state),
        _block("p", state["message"], "margin:6px 0") if state["message"] else "",
        *(_failure(trial["failure"]) for trial in state["trials"] if trial["failure"]),
        _wait(None if state["search"] is None else state["search"]["wait"]),
        _search(state["search"]) if state["search"] is not None else "",
        _charts(state),
        _metrics(state),
        *(_trial(trial) for trial in state["trials"]),
        _block("div", lines.slots_line(state), _QUIET),
        _block("div", lines.checkpoints_line(state["checkpoints"]), _QUIET),
        *(_block("div", sentence, _QUIET) for sentence in lines.left_out(state)),
        _captured(state),
    ]
    return f'<div style="{_CARD}">{"".join(parts)}</div>'


def _text(text: str) -> str:
    return escape(printable(text))


def _block(tag: str, text: str, style: str) -> str:
    return f'<{tag} style="{style}">{_text(text)}</{tag}>' if text else ""


def _header(state: ViewState) -> str:
    done = percent(state["progress"])
    return (
        f'<div><span style="{_BADGE}">{_SHAPES[state["status"]]} {state["status_word"]}</span> '
        f'<b style="font-size:15px;margin-left:6px">{_text(state["name"])}</b> '
        f'<span style="{_QUIET}">experiment {state["id"]}</span> '
        + "".join(f'<span style="{_CHIP}">{_text(label)}</span>' for label in state["labels"])
        + "</div>"
        + _block("div", state["description"], f"{_QUIET};white-space:pre-line")
        + f'<div style="{_TRACK}" role="img" aria-label="{done} done">'
        f'<div style="{_FILL}{state["progress"] * 100:.1f}%"></div></div>'
        + _block("div", f"{done} · {lines.summary(state)}", _QUIET)
    )


def _search(search: Search) -> str:
    head, rows = lines.best_rows(search)
    cells = [[_text(cell) for cell in row] for row in rows]
    table = _table([_text(name) for name in head], cells) if rows else "<p>No trials yet.</p>"
    return (
        "".join(_block("div", line, _REMARK) for line in lines.remark_lines(search))
        + f'<div style="margin:10px 0">{svg_rungs(search)}</div>'
        + "".join(_block("div", sentence, _QUIET) for sentence in rung_sentences(search))
        + f'<div style="overflow-x:auto;margin:6px 0">{table}</div>'
        + _block("div", lines.best_note(search), _QUIET)
    )


def _charts(state: ViewState) -> str:
    if not state["charts"]:
        return _block("p", state["no_metrics"], _QUIET)
    charts = state["charts"]
    last_step = max(series["steps"][-1] for chart in charts for series in chart["series"])
    body = "".join(_chart(chart, last_step) for chart in charts)
    return f'<div style="{_CHARTS}">{body}</div>'


def _chart(chart: Chart, last_step: int) -> str:
    legend = "".join(
        f'<span style="margin-left:10px;display:inline-block">{_mark(series)} '
        f"{_text(series['label'])} {number(series['last'])}</span>"
        for series in chart["series"]
        if not series["is_faint"]
    )
    return (
        f'<div style="min-width:0"><div><b>{_text(chart["title"])}</b>'
        f'<span style="{_QUIET}">{legend}</span></div>{svg_chart(chart, last_step)}</div>'
    )


def _mark(series: Series) -> str:
    shape = "●" if series["kind"] == "points" else ("╌" if is_dashed(series) else "━")
    return f'<span style="color:{color(series)}">{shape}</span>'


def _metrics(state: ViewState) -> str:
    rows = [
        [_text(name), *map(number, (curve["last"], curve["lowest"], curve["highest"]))]
        for name, curve in lines.series_rows(state)
    ]
    if not rows:
        return ""
    return _details("Metrics as a table", _table(["metric", "last", "lowest", "highest"], rows))


def _captured(state: ViewState) -> str:
    if not state["num_captured"]:
        return ""
    total = size(sum(name["size_bytes"] for name in state["captured"]))
    rows = [
        [_text(c["name"]), size(c["size_bytes"]), _text(c["type"]), _text(c["cell"])]
        for c in state["captured"]
    ]
    body = _table(["name", "size", "type", "cell"], rows)
    notices = "".join(_block("div", notice, _QUIET) for notice in state["notices"])
    title = f"Captured from the notebook: {count(state['num_captured'], 'name')}, {total}"
    return _details(title, body + notices)


def _details(title: str, body: str) -> str:
    return f'<details style="margin:4px 0"><summary>{_text(title)}</summary>{body}</details>'


def _table(head: list[str], rows: list[list[str]]) -> str:
    """Return a table of cells that are HTML already; the first column reads from the left."""

    def line(tag: str, cells: list[str]) -> str:
        first, *rest = cells
        others = "".join(f'<{tag} style="{_CELL}">{cell}</{tag}>' for cell in rest)
        return f'<tr><{tag} style="text-align:left">{first}</{tag}>{others}</tr>'

    body = "".join(line("td", row) for row in rows)
    return (
        f'<table style="{_TABLE}"><thead>{line("th", head)}</thead><tbody>{body}</tbody></table>'
    )


def _wait(wait: Wait | None) -> str:
    if wait is None:
        return ""
    remedies = "".join(
        f"<li>{_text(remedy['sentence'])} {_block('code', remedy['command'], _CODE)}</li>"
        for remedy in wait["remedies"]
    )
    return (
        f'<div style="{_REMARK}">{_text(wait["sentence"])}'
        + _block("div", wait["expected"], _QUIET)
        + (f'<ul style="margin:2px 0;padding-left:20px">{remedies}</ul>' if remedies else "")
        + "</div>"
    )


def _trial(trial: Trial) -> str:
    ranks = "".join(map(_rank, trial["ranks"]))
    return (
        f'<div style="margin:6px 0">{_text(lines.trial_title(trial))}'
        + _block("div", trial["makes_room"], _REMARK)
        + _wait(trial["wait"])
        + (f"<div>{ranks}</div>" if ranks else "")
        + "</div>"
    )


def _rank(rank: Rank) -> str:
    device = f" · {rank['device']}" if rank["device"] else ""
    place = _text(f"{rank['slot']}{device} · pid {rank['pid']} · {rank['status']}")
    return (
        f'<span style="{_CHIP}"><b>{rank["rank"]}</b> <span style="{_QUIET}">{place}</span></span>'
    )


def _failure(failure: Failure | None) -> str:
    if failure is None:
        return ""
    where = f" at {failure['where']}" if failure["where"] else ""
    traceback = failure["traceback"]
    return (
        f'<div style="{_ALARM}"><div>✖ {_text(lines.failure_title(failure))}: '
        f"<b>{_text(failure['error'])}</b>{_text(where)}</div>"
        + (_details("Traceback", _block("pre", traceback, _PRE)) if traceback else "")
        + "</div>"
    )
