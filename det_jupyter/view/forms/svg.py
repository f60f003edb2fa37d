"""Draws a chart as an SVG picture without scripts and style sheets, for light and dark pages.

All colours have medium lightness, and curves differ by dashes and dots too. The picture is
embedded as an image (`as_image`), because SVG elements are removed from untrusted notebooks, and
images are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from urllib.parse import quote

from det_jupyter.contract.messages.curves import landmarks
from det_jupyter.contract.values.text import printable, shortened
from det_jupyter.view.making.axes import number_axis, padded, place_on
from det_jupyter.view.model.search_state import Axis
from det_jupyter.view.model.trial_state import Chart, ChartSeries

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
_FEWEST = 3  # characters of a shortened label
_DENSE = 40  # most dots of a curve: more would run into each other

Point = tuple[float, float]


def as_image(svg: str, alt: str, style: str = "width:100%;height:auto;display:block") -> str:
    """Return a picture as an `<img>` with a data URL."""
    source = f"data:image/svg+xml,{quote(as_file(svg), safe=_SAFE)}"
    return f'<img src="{source}" alt="{escape(printable(alt))}" style="{style}">'


def as_file(svg: str) -> str:
    """Return a picture as the content of a file."""
    root = f"<svg xmlns='http://www.w3.org/2000/svg' color='{_INK}' font-family='sans-serif' "
    return svg.replace("<svg ", root, 1).replace('"', "'")


def color(series: ChartSeries) -> str:
    """Return the colour of a curve; for a faint curve, the colour of the page's text."""
    if series["is_faint"]:
        return "currentColor"
    return COLORS[series["look"] % len(COLORS)]


def is_dashed(series: ChartSeries) -> bool:
    return not series["is_faint"] and series["look"] >= len(COLORS)


def svg_chart(chart: Chart, last_step: int) -> str:
    """Return the chart from step 0 to `last_step`; "" if it has no finite value."""
    finite = [v for one in chart["series"] for v in one["values"] if v is not None]
    if not finite:
        return ""
    frame = _Frame(
        steps=number_axis("step", 0, max(1, last_step), is_whole=True),
        values=number_axis(chart["title"], *padded(min(finite), max(finite))),
    )
    body = [frame.axes()]
    for one in chart["series"]:
        places = landmarks(one["values"], MAX_POINTS)
        body.append(_curve([frame.point(one["steps"][i], one["values"][i]) for i in places], one))
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}">{"".join(body)}</svg>'


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """Maps steps and values to coordinates of the picture."""

    steps: Axis
    values: Axis

    @property
    def left(self) -> float:
        """The left edge of the plot, after the longest label of the axis."""
        return room_for_ticks(self.values)

    def x(self, step: float) -> float:
        return self.left + (_WIDTH - self.left - _RIGHT) * place_on(self.steps, step)

    def y(self, value: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - place_on(self.values, value))

    def point(self, step: float, value: float | None) -> Point | None:
        return None if value is None else (self.x(step), self.y(value))

    def axes(self) -> str:
        parts = []
        for value, text in labels(self.values):
            y = self.y(value)
            parts.append(
                f'<line x1="{self.left:.1f}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
                'stroke="currentColor" stroke-opacity=".18"/>'
                + label(self.left - 5, y + 3, "end", text)
            )
        for step, text in labels(self.steps):
            parts.append(label(self.x(step), _HEIGHT - 4, "middle", text))
        return "".join(parts)


def labels(axis: Axis) -> Iterable[tuple[float, str]]:
    """Return the values that have a label beside the axis, with it."""
    return zip(axis["ticks"], axis["tick_labels"], strict=True)


def room_for_ticks(axis: Axis) -> float:
    """Return the width that the labels to the left of an axis need, with the space around them."""
    return 9 + _CHARACTER * max(map(len, axis["tick_labels"]), default=0)


def fitted(text: str, width: float) -> str:
    """Return the text of a label, on one line, shortened to a width."""
    return shortened(text, max(_FEWEST, int(width / _CHARACTER)))


def first_fitting(choices: Sequence[Sequence[str]], width: float) -> Sequence[str]:
    """Return the first of several rows of labels that all fit in a width; if none, empty ones."""
    fitting = (row for row in choices if all(len(text) * _CHARACTER <= width for text in row))
    return next(fitting, [""] * len(choices[0]))


def label(x: float, y: float, anchor: str, text: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="9" '
        f'fill="currentColor">{escape(text)}</text>'
    )


def _curve(points: Sequence[Point | None], series: ChartSeries) -> str:
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
