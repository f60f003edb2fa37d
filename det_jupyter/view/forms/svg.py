"""Draws a chart as an SVG picture without scripts and style sheets, for light and dark pages.

All colours have medium lightness, and curves differ by dashes and dots too. The picture is
embedded as an image (`as_image`), because SVG elements are removed from untrusted notebooks, and
images are not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from urllib.parse import quote

from det_jupyter.contract.messages.curves import landmarks
from det_jupyter.contract.values.text import number, printable
from det_jupyter.view.model.trial_state import Chart, Series

MAX_POINTS = 300
COLORS = ("#3b82c4", "#d07a1e", "#3f9b57", "#9a6fc4")
_WIDTH, _HEIGHT = 320, 150
_RIGHT, _TOP, _BOTTOM = 10, 8, 18
_INK = "#777"  # readable on white and on black
_SAFE = (
    # Characters that are not quoted, besides letters and digits; a colon would look like a URL
    # scheme.
    " =/,;'()*.-+"
)
_CHARACTER = 5.2  # width of a digit in the axis font
_DENSE = 40  # most dots of a curve: more would run into each other
_HUGE = 8e307  # of larger values, differences overflow

Point = tuple[float, float]


def as_image(svg: str, alt: str, style: str = "width:100%;height:auto;display:block") -> str:
    """Return a picture as an `<img>` with a data URL."""
    root = f"<svg xmlns='http://www.w3.org/2000/svg' color='{_INK}' font-family='sans-serif' "
    drawn = svg.replace("<svg ", root, 1).replace('"', "'")
    source = f"data:image/svg+xml,{quote(drawn, safe=_SAFE)}"
    return f'<img src="{source}" alt="{escape(printable(alt))}" style="{style}">'


def color(series: Series) -> str:
    """Return the colour of a curve; for a faint curve, the colour of the page's text."""
    if series["is_faint"]:
        return "currentColor"
    return COLORS[series["look"] % len(COLORS)]


def is_dashed(series: Series) -> bool:
    return not series["is_faint"] and series["look"] >= len(COLORS)


def svg_chart(chart: Chart, last_step: int) -> str:
    """Return the chart from step 0 to `last_step`; "" if it has no finite value."""
    finite = [v for one in chart["series"] for v in one["values"] if v is not None]
    if not finite:
        return ""
    low, high = padded(min(finite), max(finite))
    frame = _Frame(last_step=max(1, last_step), low=low, high=high)
    body = [frame.axes()]
    for one in chart["series"]:
        places = landmarks(one["values"], MAX_POINTS)
        body.append(_curve([frame.point(one["steps"][i], one["values"][i]) for i in places], one))
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}">{"".join(body)}</svg>'


def padded(low: float, high: float) -> tuple[float, float]:
    """Return the range with a margin on both sides, also if its width is 0."""
    pad = (high / 2 - low / 2) * 0.1 or abs(high) * 0.1 or 1.0
    return max(low - pad, -_HUGE), min(high + pad, _HUGE)


def share_of(value: float, low: float, high: float) -> float:
    """Return the position of a value in a range, from 0 to 1; 0.5 if the range's width is 0."""
    half = high / 2 - low / 2  # halved so that huge differences do not overflow
    return min(1.0, max(0.0, (value / 2 - low / 2) / half)) if half > 0 else 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """Maps steps and values to coordinates of the picture."""

    last_step: int
    low: float
    high: float

    @property
    def left(self) -> float:
        """The left edge of the plot, after the longest label of the axis."""
        longest = max((len(tick_text(tick)) for tick in ticks(self.low, self.high)), default=0)
        return 9 + _CHARACTER * longest

    def x(self, step: float) -> float:
        return self.left + (_WIDTH - self.left - _RIGHT) * step / self.last_step

    def y(self, value: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - share_of(value, self.low, self.high))

    def point(self, step: float, value: float | None) -> Point | None:
        return None if value is None else (self.x(step), self.y(value))

    def axes(self) -> str:
        parts = []
        for value in ticks(self.low, self.high):
            y = self.y(value)
            parts.append(
                f'<line x1="{self.left:.1f}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
                'stroke="currentColor" stroke-opacity=".18"/>'
                + label(self.left - 5, y + 3, "end", tick_text(value))
            )
        for step in ticks(0.0, self.last_step):
            if step.is_integer():
                parts.append(label(self.x(step), _HEIGHT - 4, "middle", tick_text(step)))
        return "".join(parts)


def ticks(low: float, high: float, *, is_whole: bool = False) -> list[float]:
    """Return a few round numbers in the range; none if the range is too narrow for floats.

    Args:
        is_whole: Whether the values are integers.
    """
    rough = max(high / 4 - low / 4, 1.0 if is_whole and low < high else 0.0)
    if not rough > 1e-300:
        return []
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(digit * power for digit in (1, 2, 5, 10) if digit * power >= rough)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [tick * step for tick in range(first, last + 1)]


def tick_text(value: float) -> str:
    size = abs(value)
    return f"{value:.6g}" if size == 0 or 1e-4 <= size < 1e6 else number(value)


def label(x: float, y: float, anchor: str, text: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="9" '
        f'fill="currentColor">{escape(text)}</text>'
    )


def _curve(points: Sequence[Point | None], series: Series) -> str:
    pieces = _pieces(points)
    width, radius, opacity = 1.2 if series["kind"] == "line" else 1.6, 2.2, 1.0
    if series["is_faint"]:
        width, radius, opacity = 0.8, 1.6, 0.3
    dashes = ' stroke-dasharray="5 3"' if is_dashed(series) else ""
    look = f'opacity="{opacity:g}"{dashes}'
    parts = [
        f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in piece)}" fill="none" '
        f'stroke="{color(series)}" stroke-width="{width}" stroke-linejoin="round" {look}/>'
        for piece in pieces
        if len(piece) > 1
    ]
    dots = [point for piece in pieces for point in piece]
    if series["kind"] == "line" or series["is_faint"] or len(dots) > _DENSE:
        dots = [
            piece[0] for piece in pieces if len(piece) == 1
        ]  # isolated points, for which a line draws nothing
    dot = f'r="{radius}" fill="{color(series)}" opacity="{opacity:g}"'
    parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" {dot}/>' for x, y in dots]
    return "".join(parts)


def _pieces(points: Sequence[Point | None]) -> list[list[Point]]:
    """Return the sequences of points between gaps (None)."""
    pieces: list[list[Point]] = [[]]
    for point in points:
        if point is None:
            pieces.append([])
        else:
            pieces[-1].append(point)
    return [piece for piece in pieces if piece]
