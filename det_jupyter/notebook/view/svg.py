"""A chart as an SVG picture: no script, no style sheet, readable on white and on black.

Text and axes take the colour of the page; the curves have colours of middling lightness, and
differ by dashes and dots too.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from det_jupyter.notebook.view.charts import downsample
from det_jupyter.notebook.view.model import Chart, Series
from det_jupyter.notebook.view.words import number

MAX_POINTS = 300
COLORS = ("#3b82c4", "#d07a1e", "#3f9b57", "#9a6fc4")
_WIDTH, _HEIGHT = 320, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 8, 8, 18  # room for the axis labels
_DENSE = 40  # more dots than this would run into each other

Point = tuple[float, float]


def stroke(place: int) -> str:
    """Return the attributes of the curve at `place` in its chart."""
    dashes = ' stroke-dasharray="5 3"' if place >= len(COLORS) else ""
    return f'stroke="{COLORS[place % len(COLORS)]}"{dashes}'


def svg_chart(chart: Chart) -> str:
    """Return the chart as an `<svg>` element."""
    series = [_sampled(one) for one in chart["series"]]
    x_range = _range([step for steps, _ in series for step in steps])
    y_range = _range([value for _, values in series for value in values if value is not None])
    if x_range is None or y_range is None:
        return "<p>no finite value</p>"
    y_range = _padded(*y_range)
    body = [_axes(x_range, y_range)]
    for place, (steps, values) in enumerate(series):
        points = [
            None if value is None else (_x(step, x_range), _y(value, y_range))
            for step, value in zip(steps, values, strict=True)
        ]
        body.append(_curve(points, place, chart["series"][place]["kind"]))
    label = escape(f"{chart['title']} by step")
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}" '
        f'style="width:100%;max-width:{_WIDTH * 2}px;height:auto;display:block">'
        f"{''.join(body)}</svg>"
    )


def _sampled(series: Series) -> tuple[list[int], list[float | None]]:
    return downsample(series["steps"], series["values"], MAX_POINTS)


def _range(values: Sequence[float]) -> tuple[float, float] | None:
    return (min(values), max(values)) if values else None


def _padded(low: float, high: float) -> tuple[float, float]:
    """Return a range with some air; a flat curve lies in the middle of it."""
    pad = (high / 2 - low / 2) * 0.1 or abs(high) * 0.1 or 1.0
    return low - pad, high + pad


def _share(value: float, bounds: tuple[float, float]) -> float:
    """Return where `value` lies between the bounds; halved, so that huge ones do not overflow."""
    low, high = bounds
    return 0.5 if high == low else (value / 2 - low / 2) / (high / 2 - low / 2)


def _x(step: float, bounds: tuple[float, float]) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * _share(step, bounds)


def _y(value: float, bounds: tuple[float, float]) -> float:
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - _share(value, bounds))


def _axes(x_range: tuple[float, float], y_range: tuple[float, float]) -> str:
    low, high = y_range
    parts = []
    for value in (low, low / 2 + high / 2, high):
        y = _y(value, y_range)
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
            'stroke="currentColor" stroke-opacity=".18"/>'
            + _text(_LEFT - 5, y + 3, "end", number(value))
        )
    bottom = _HEIGHT - 4
    first, last = x_range
    parts.append(_text(_LEFT, bottom, "start", str(first)))
    if last != first:
        parts.append(_text(_WIDTH - _RIGHT, bottom, "end", f"step {last}"))
    return "".join(parts)


def _text(x: float, y: float, anchor: str, text: str) -> str:
    return (
        f'<text x="{x}" y="{y:.1f}" text-anchor="{anchor}" font-size="9" '
        f'fill="currentColor" fill-opacity=".7">{escape(text)}</text>'
    )


def _curve(points: Sequence[Point | None], place: int, kind: str) -> str:
    width = "1.2" if kind == "line" else "1.6"
    parts = [
        f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in piece)}" fill="none" '
        f'{stroke(place)} stroke-width="{width}" stroke-linejoin="round"/>'
        for piece in _pieces(points)
        if len(piece) > 1
    ]
    whole = [point for point in points if point is not None]
    if kind == "points" and len(whole) <= _DENSE:
        dotted = whole
    else:  # a point without neighbours would have no line to be seen by
        dotted = [piece[0] for piece in _pieces(points) if len(piece) == 1]
    color = COLORS[place % len(COLORS)]
    parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.2" fill="{color}"/>' for x, y in dotted]
    return "".join(parts)


def _pieces(points: Sequence[Point | None]) -> list[list[Point]]:
    """Return the stretches between gaps."""
    pieces: list[list[Point]] = [[]]
    for point in points:
        if point is None:
            pieces.append([])
        else:
            pieces[-1].append(point)
    return [piece for piece in pieces if piece]
