"""Formats the view as a card of self-contained HTML: no script, no style sheet, no network.

The card needs no kernel, and is also shown on GitHub and where widgets do not work. Its tables
contain all data, in case styles and pictures are removed too. Text has the colour of the page.
"""

from __future__ import annotations

from det_jupyter.contract.values.reader import NOTEBOOK
from det_jupyter.contract.values.text import count, percent, size
from det_jupyter.view.forms import text_lines
from det_jupyter.view.forms.html_parts import (
    CARD,
    CODE,
    LINE,
    PRE,
    QUIET,
    REMARK,
    block,
    chart_grid,
    details,
    escaped,
    html_table,
    prose,
)
from det_jupyter.view.forms.parallel_svg import svg_parallel
from det_jupyter.view.forms.rungs_svg import rung_legend, rung_sentences, svg_rungs
from det_jupyter.view.forms.svg import COLORS, as_image
from det_jupyter.view.forms.verdict_card import verdict_html
from det_jupyter.view.making.search_view import ranked
from det_jupyter.view.model.search_state import SearchState
from det_jupyter.view.model.slots_and_queue import Wait
from det_jupyter.view.model.status_looks import Status
from det_jupyter.view.model.trial_state import RankStatus, TrialDetails
from det_jupyter.view.model.view_state import ViewState

_BADGE = "border:1px solid currentColor;border-radius:10px;padding:1px 9px;white-space:nowrap"
_TRACK = f"height:6px;border-radius:3px;background:{LINE};margin:8px 0 4px"
_FILL = f"height:6px;border-radius:3px;background:{COLORS[0]};width:"
_ALARM = "border-left:3px solid #d9534f;padding:2px 10px;margin:8px 0"
_CHIP = (
    f"border:1px solid {LINE};border-radius:3px;padding:1px 8px;margin:2px 6px 2px 0;"
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
    "error": "✖",
}


def render_html(state: ViewState) -> str:
    """Return the experiment as a self-contained card."""
    parts = [
        _header(state),
        f'<p style="margin:6px 0">{prose(state["message"])}</p>' if state["message"] else "",
        *(f'<p style="{_ALARM}">⚠ {prose(alarm)}</p>' for alarm in state["alarms"]),
        *(_failure(trial, state["id"]) for trial in state["trials"]),
        _wait(None if state["search"] is None else state["search"]["wait"]),
        _search(state["search"]) if state["search"] is not None else "",
        chart_grid(state["charts"], state["no_metrics"]),
        _metrics(state),
        *(_trial(trial) for trial in state["trials"]),
        block("div", text_lines.slots_line(state), QUIET),
        block("div", text_lines.checkpoints_line(state["checkpoints"]), QUIET),
        block("div", text_lines.left_out(state), QUIET),
        _captured(state),
    ]
    return f'<div style="{CARD}">{"".join(parts)}</div>'


def _header(state: ViewState) -> str:
    done = percent(state["progress"])
    return (
        f'<div><span style="{_BADGE}">{_SHAPES[state["status"]]} {state["status_word"]}</span> '
        f'<b style="font-size:15px;margin-left:6px">{escaped(state["name"])}</b> '
        f'<span style="{QUIET}">experiment {state["id"]}</span> '
        + "".join(f'<span style="{_CHIP}">{escaped(label)}</span>' for label in state["labels"])
        + "</div>"
        + block("div", state["description"], f"{QUIET};white-space:pre-line")
        + f'<div style="{_TRACK}" role="img" aria-label="{done} done">'
        f'<div style="{_FILL}{state["progress"] * 100:.1f}%"></div></div>'
        + block("div", f"{done} · {text_lines.summary(state)}", QUIET)
    )


def _search(search: SearchState) -> str:
    return (
        "".join(block("div", line, REMARK) for line in text_lines.remark_lines(search))
        + _rungs(search)
        + "".join(block("div", sentence, QUIET) for sentence in rung_sentences(search))
        + _parallel(search)
        + (_trials(search, 0, text_lines.MAX_BEST) or "<p>No trials yet.</p>")
        + _more_trials(search)
        + block("div", text_lines.left_out_note(search, text_lines.MAX_KEPT), QUIET)
        + block("div", text_lines.importance_line(search), QUIET)
    )


def _trials(search: SearchState, first: int, last: int) -> str:
    head, rows = text_lines.trial_rows(search, first, last)
    if not rows:
        return ""
    cells = [[escaped(cell) for cell in row] for row in rows]
    table = html_table([escaped(name) for name in head], cells)
    return f'<div style="overflow-x:auto;margin:6px 0">{table}</div>'


def _more_trials(search: SearchState) -> str:
    table = _trials(search, text_lines.MAX_BEST, text_lines.MAX_KEPT)
    num_more = min(len(search["rows"]), text_lines.MAX_KEPT) - text_lines.MAX_BEST
    return details(f"{count(num_more, 'more trial')}, best first", table) if table else ""


def _parallel(search: SearchState) -> str:
    alt = f"hyperparameters and {search['metric']} of each trial; the best are strongest"
    return _picture(svg_parallel(search, ranked(search)[: text_lines.MAX_KEPT]), alt)


def _rungs(search: SearchState) -> str:
    legend = f"<div>{rung_legend(search)}</div>"
    return _picture(svg_rungs(search), f"trials at each rung, by {search['metric']}", legend)


def _picture(svg: str, alt: str, legend: str = "") -> str:
    return f'<div style="margin:10px 0">{as_image(svg, alt)}{legend}</div>' if svg else ""


def _metrics(state: ViewState) -> str:
    rows = [[escaped(name), *numbers] for name, *numbers in text_lines.metric_rows(state)]
    if not rows:
        return ""
    return details("Metrics as a table", html_table(text_lines.METRIC_HEAD, rows))


def _captured(state: ViewState) -> str:
    notices = "".join(block("div", notice, QUIET) for notice in state["notices"])
    if not state["num_captured"]:
        return notices
    total = size(sum(name["size_bytes"] for name in state["captured"]))
    rows = [
        [escaped(c["name"]), size(c["size_bytes"]), escaped(c["type"]), escaped(c["cell"])]
        for c in state["captured"]
    ]
    body = html_table(["name", "size", "type", "cell"], rows)
    title = f"Captured from the notebook: {count(state['num_captured'], 'name')}, {total}"
    return notices + details(title, body)


def _wait(wait: Wait | None) -> str:
    if wait is None:
        return ""
    remedies = "".join(
        f"<li>{escaped(remedy['sentence'])} {block('code', remedy['command'], CODE)}</li>"
        for remedy in wait["remedies"]
    )
    return (
        f'<div style="{REMARK}">{prose(wait["sentence"])}'
        + block("div", wait["expected"], QUIET)
        + (f'<ul style="margin:2px 0;padding-left:20px">{remedies}</ul>' if remedies else "")
        + "</div>"
    )


def _trial(trial: TrialDetails) -> str:
    ranks = "".join(map(_rank, trial["ranks"]))
    return (
        f'<div style="margin:6px 0">{escaped(text_lines.trial_title(trial))}'
        + block("div", trial["makes_room"], REMARK)
        + _wait(trial["wait"])
        + ("" if trial["verdict"] is None else verdict_html(trial["verdict"]))
        + (f"<div>{ranks}</div>" if ranks else "")
        + "</div>"
    )


def _rank(rank: RankStatus) -> str:
    device = f" · {rank['device']}" if rank["device"] else ""
    place = escaped(f"{rank['slot']}{device} · pid {rank['pid']} · {rank['status']}")
    return (
        f'<span style="{_CHIP}"><b>{rank["rank"]}</b> <span style="{QUIET}">{place}</span></span>'
    )


def _failure(trial: TrialDetails, experiment_id: int) -> str:
    failure = trial["failure"]
    if failure is None:
        return ""
    where = f" at {failure['where']}" if failure["where"] else ""
    traceback = failure["traceback"]
    return (
        f'<div style="{_ALARM}"><div>✖ {escaped(text_lines.failure_title(failure))}: '
        f"<b>{escaped(failure['error'])}</b>{escaped(where)}</div>"
        + (details("Traceback", block("pre", traceback, PRE)) if traceback else "")
        + block("div", f"Logs: {text_lines.logs_line(experiment_id, trial, NOTEBOOK)}", QUIET)
        + "</div>"
    )
