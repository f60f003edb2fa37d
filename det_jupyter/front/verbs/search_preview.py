"""The preview of a search as text with a table and as HTML with a chart; its verb.

In the chart each bracket is a row of bars, one for each rung; a bar's height is the share of the
bracket's trials that train up to that rung.
"""

from __future__ import annotations

import time
from html import escape

from det_jupyter.client.submitting.drafts import preview_draft
from det_jupyter.client.submitting.submission import read_draft
from det_jupyter.client.tables import plain_table
from det_jupyter.contract.messages import PlannedBracket, PreviewView
from det_jupyter.contract.values.text import (
    count,
    length,
    rough_duration,
    short_time,
    singular_unit,
)
from det_jupyter.front.verbs.grammar import Call
from det_jupyter.front.verbs.listings import html_table
from det_jupyter.front.verbs.yaml_input import set_from_yaml

_STEP_WIDTH, _HEIGHT, _GAP, _LABEL = 84, 72, 28, 26
_MAX_BRACKETS = 8
_COLOR = "#3b82c4"
_RANGES = ("hyperparameter", "range", "such as")
_LEFT = ' style="text-align:left"'
_RIGHT = ' style="text-align:right"'


def render_text(view: PreviewView, at: float) -> str:
    """Return the preview as lines of text; `at` is the present time."""
    ranges = [plain_table(_RANGES, _range_rows(view)), ""] if view.ranges else []
    table = plain_table(_header(view), _rows(view))
    return "\n".join([_title(view), "", *ranges, table, "", _training(view), _time(view, at)])


def _title(view: PreviewView) -> str:
    """Return the search in one line."""
    return f"{view.searcher}: {count(view.num_trials, 'trial')}, judged by {view.metric}"


def _header(view: PreviewView) -> tuple[str, ...]:
    """Return the headings of the table: one column for each bracket, if there are several."""
    brackets = [f"bracket {number}" for number in range(1, len(view.brackets) + 1)]
    return ("train for", "trials that end there", *(brackets if len(brackets) > 1 else []))


def _rows(view: PreviewView) -> list[tuple[str, ...]]:
    """Return a row for each length."""
    found = []
    for planned in view.trials:
        counts = [planned.num_trials]
        if len(view.brackets) > 1:
            counts += [
                sum(p.num_trials for p in bracket.trials if p.length == planned.length)
                for bracket in view.brackets
            ]
        found.append((length(planned.length), *(f"{number:,}" for number in counts)))
    return found


def _range_rows(view: PreviewView) -> list[tuple[str, ...]]:
    return [(each.name, each.range, ", ".join(each.samples)) for each in view.ranges]


def _training(view: PreviewView) -> str:
    text = f"Training in all: {length({view.unit: round(view.expected)})}"
    if view.least != view.most:
        text += f" (least {view.least:,.0f}, most {view.most:,.0f})"
    if view.expected < view.full:
        share = view.expected / view.full
        text += f"; {share:.0%} of training every trial to the end"
    return f"{text}."


def _time(view: PreviewView, at: float) -> str:
    if view.pace is None or view.seconds is None:
        return f"How long it takes is not known: {view.no_pace}."
    return (
        f"On {count(view.slots, 'slot')}, {count(view.concurrent, 'trial')} at once: "
        f"about {rough_duration(view.seconds)}, done about {short_time(at + view.seconds, at)} "
        f"({view.pace.seconds_per_unit:.3g} s a {singular_unit(view.pace.unit)}, "
        f"{view.pace.source})."
    )


def render_page(view: PreviewView, at: float) -> str:
    """Return the preview as HTML that needs neither script nor style sheet."""
    ranges = html_table(_RANGES, _range_rows(view), _LEFT) if view.ranges else ""
    words = "".join(f"<p>{escape(text)}</p>" for text in (_training(view), _time(view, at)))
    return (
        f"<div><p><b>{escape(_title(view))}</b></p>{_chart(view)}{ranges}"
        f"{html_table(_header(view), _rows(view), _RIGHT)}{words}</div>"
    )


def _chart(view: PreviewView) -> str:
    brackets = view.brackets[:_MAX_BRACKETS]
    if max(len(bracket.trials) for bracket in brackets) < 2:
        return ""  # every trial trains to the end
    left, parts = 0, []
    for bracket in brackets:
        parts.append(_bars(bracket, left))
        left += _STEP_WIDTH * len(bracket.trials) + _GAP
    width, height = left - _GAP, _HEIGHT + _LABEL
    label = escape(f"How many trials train how long, in {len(view.brackets)} bracket(s)")
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}" '
        f'style="width:100%;max-width:{width}px;height:auto;display:block">{"".join(parts)}</svg>'
    )


def _bars(bracket: PlannedBracket, left: int) -> str:
    counts = [planned.num_trials for planned in bracket.trials]
    parts = []
    for index, planned in enumerate(bracket.trials):
        reaching = sum(counts[index:])
        tall = max(2.0, (_HEIGHT - 12) * reaching / sum(counts))
        x, top = left + index * _STEP_WIDTH, _HEIGHT - tall
        middle = x + _STEP_WIDTH / 2
        parts.append(
            f'<rect x="{x}" y="{top:.1f}" width="{_STEP_WIDTH - 2}" height="{tall:.1f}" '
            f'fill="{_COLOR}" fill-opacity="{0.45 + 0.55 * index / len(counts):.2f}"/>'
            + _text(middle, top - 3, f"{reaching:,}")
            + _text(middle, _HEIGHT + 12, length(planned.length))
        )
    return "".join(parts)


def _text(x: float, y: float, text: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" font-size="9" '
        f'fill="currentColor">{escape(text)}</text>'
    )


def preview(call: Call) -> str:
    """Return what a search would train."""
    above = f"{call.reader.above_yaml}{call.reader.det} preview-search"
    return set_from_yaml(call, lambda text: _preview(call, text), above)


def _preview(call: Call, text: str) -> str:
    draft = read_draft(call.client, text, call.options.template)
    view = preview_draft(call.client, draft, call.options.seconds_per_batch)
    notes = [f"Note: {notice}" for notice in view.notices]
    return "\n".join([render_text(view, time.time()), *notes])
