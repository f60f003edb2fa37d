"""The preview of a search as HTML: the table, and a picture of the brackets.

picture     each bracket is a flight of steps: a step is a rung, as tall as the share of the
            bracket's trials that train up to it, as wide as any other
"""

from __future__ import annotations

from html import escape

from det_jupyter.verbs.preview import header, rows, sentences, title
from det_jupyter.wire import PlannedBracket, PreviewView
from det_jupyter.words import length

_STEP_WIDTH, _HEIGHT, _GAP, _LABEL = 84, 72, 28, 26
_MAX_BRACKETS = 8
_COLOR = "#3b82c4"
_RIGHT = 'style="text-align:right"'


def render_page(view: PreviewView, at: float) -> str:
    """Return the preview as HTML that needs neither script nor style sheet."""
    head = "".join(f"<th {_RIGHT}>{escape(text)}</th>" for text in header(view))
    body = "".join(
        f"<tr>{''.join(f'<td {_RIGHT}>{escape(cell)}</td>' for cell in row)}</tr>"
        for row in rows(view)
    )
    words = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences(view, at))
    return (
        f"<div><p><b>{escape(title(view))}</b></p>{_picture(view)}"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{words}</div>"
    )


def _picture(view: PreviewView) -> str:
    brackets = view.brackets[:_MAX_BRACKETS]
    if max(len(bracket.trials) for bracket in brackets) < 2:
        return ""  # every trial trains to the end: nothing to be seen
    left, parts = 0, []
    for bracket in brackets:
        parts.append(_steps(bracket, left))
        left += _STEP_WIDTH * len(bracket.trials) + _GAP
    width, height = left - _GAP, _HEIGHT + _LABEL
    label = escape(f"How many trials train how long, in {len(view.brackets)} bracket(s)")
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}" '
        f'style="width:100%;max-width:{width}px;height:auto;display:block">{"".join(parts)}</svg>'
    )


def _steps(bracket: PlannedBracket, left: int) -> str:
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
