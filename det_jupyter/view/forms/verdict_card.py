"""Formats a verdict as text and as HTML: sentence, shares of the time, evidence, advice."""

from __future__ import annotations

from collections.abc import Sequence

from det_jupyter.contract.messages.verdicts import VerdictKind
from det_jupyter.contract.values.text import one_line
from det_jupyter.view.forms.html_parts import LINE, QUIET, block, details, escaped, html_table
from det_jupyter.view.forms.svg import COLORS, as_image
from det_jupyter.view.model.verdict_state import TimeShare, VerdictState

_WIDTH, _BAR, _ROW = 640, 18, 16
_LETTER = 5.6  # width in the legend's font
_SWATCH = 14
_RED, _GREY = "#d9534f", "#888"
# Colour and hatching of each kind, so that kinds differ without colours too.
_LOOKS: dict[VerdictKind, tuple[str, str]] = {
    "compute": (COLORS[2], ""),
    "input": (COLORS[0], "M0 6L6 0"),
    "transfer": (COLORS[0], "M0 3H6"),
    "communication": (COLORS[3], "M3 0V6"),
    "straggler": (_RED, "M0 6L6 0M0 0L6 6"),
    "uneven": (_RED, "M2 3h2"),
    "checkpoint": (COLORS[1], "M0 0L6 6"),
    "validation": (COLORS[1], "M2 0v2M4 4v2"),
    "residual": (_GREY, "M0 3H6M3 0V6"),
}
_SIGNS: dict[VerdictKind, str] = {"healthy": "✔", "unknown": "…", "compute": "▶", "memory": "▲"}


def verdict_lines(verdict: VerdictState) -> list[str]:
    """Return a verdict as lines of text: the sentence, the shares, evidence and advice."""
    text = [one_line(verdict["sentence"])]
    if shares := shares_text(verdict["shares"]):
        text.append(f"  time: {shares}")
    if verdict["network"]:
        text.append(f"  network: {one_line(verdict['network'])}")
    for cause in verdict["causes"]:
        text += [f"  seen: {one_line(line)}" for line in cause["evidence"]]
    text += [f"  try: {one_line(line)}" for line in _advice(verdict)]
    return text


def shares_text(shares: Sequence[TimeShare]) -> str:
    """Return the shares of the time as one line, the largest first."""
    ordered = sorted(shares, key=lambda one: -one["share"])
    return ", ".join(f"{one['word']} {_percent(one['share'])}" for one in ordered)


def verdict_html(verdict: VerdictState) -> str:
    """Return a verdict as HTML, with its details folded."""
    sign = _SIGNS.get(verdict["kind"], "◆")
    bar = svg_shares(verdict["shares"])
    rows = [[escaped(one["word"]), _percent(one["share"])] for one in verdict["shares"]]
    seen = [line for cause in verdict["causes"] for line in cause["evidence"]]
    more = (
        (html_table(["the time goes to", "share"], rows) if rows else "")
        + _list("Seen", seen)
        + _list("To try", _advice(verdict))
    )
    basis = f"based on {verdict['batches']:,} batches" if verdict["batches"] else ""
    return (
        f'<div style="{_BOX}"><div>{sign} <b>{escaped(verdict["sentence"])}</b></div>'
        + (as_image(bar, f"time: {shares_text(verdict['shares'])}", _STYLE) if bar else "")
        + block("div", f"Network: {verdict['network']}." if verdict["network"] else "", _NETWORK)
        + (details("Shares, what was seen, and what to try", more) if more else "")
        + block("div", basis, QUIET)
        + "</div>"
    )


def _list(title: str, items: Sequence[str]) -> str:
    if not items:
        return ""
    body = "".join(f"<li>{escaped(item)}</li>" for item in items)
    return f'<div>{title}:<ul style="margin:2px 0;padding-left:20px">{body}</ul></div>'


_BOX = (
    f"margin:8px 0;border-left:3px solid {LINE};padding:2px 10px;"
    "font:13px/1.5 system-ui,sans-serif;color:inherit"
)
_NETWORK = "margin:4px 0"
_STYLE = f"width:100%;max-width:{_WIDTH}px;height:auto;display:block;margin:4px 0"


def svg_shares(shares: Sequence[TimeShare]) -> str:
    """Return a stacked bar of the shares with its legend, as SVG; empty without shares."""
    if not shares:
        return ""
    total = sum(one["share"] for one in shares)
    patterns, bar, legend = [], [], []
    at, x, row = 0.0, 0.0, 0
    for one in shares:
        color, hatching = _LOOKS[one["kind"]]
        width = _WIDTH * one["share"] / total
        words = f"{one['word']} {_percent(one['share'])}"
        patterns.append(_pattern(one["kind"], color, hatching))
        bar.append(_rect(one["kind"], at, 0, width, _BAR))
        needed = _SWATCH + _LETTER * len(words) + 14
        if x + needed > _WIDTH:
            x, row = 0.0, row + 1
        y = _BAR + 6 + row * _ROW
        legend.append(
            _rect(one["kind"], x, y, 10, 10)
            + f'<text x="{x + _SWATCH:.1f}" y="{y + 9}" font-size="10.5" fill="currentColor">'
            f"{escaped(words)}</text>"
        )
        at, x = at + width, x + needed
    height = _BAR + 6 + (row + 1) * _ROW
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}"><defs>{"".join(patterns)}</defs>'
        f"{''.join(bar)}{''.join(legend)}</svg>"
    )


def _pattern(kind: VerdictKind, color: str, hatching: str) -> str:
    lines = f'<path d="{hatching}" stroke="#fff" stroke-opacity=".7" stroke-width="1"/>'
    return (
        f'<pattern id="{kind}" width="6" height="6" patternUnits="userSpaceOnUse">'
        f'<rect width="6" height="6" fill="{color}"/>{lines if hatching else ""}</pattern>'
    )


def _rect(kind: VerdictKind, x: float, y: float, width: float, height: float) -> str:
    return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" fill="url(#{kind})"/>'


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def _advice(verdict: VerdictState) -> list[str]:
    return [line for cause in verdict["causes"] for line in cause["advice"]]
