"""Draws parallel coordinates as SVG: an axis for each hyperparameter, a line for each trial.

`labextension/src/search/parallel.ts` draws the same in the live view.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from det_jupyter.contract.values.text import printable
from det_jupyter.view.forms.rungs_svg import worth_drawing
from det_jupyter.view.forms.svg import COLORS, label, share_of, tick_text, ticks
from det_jupyter.view.model.search_state import Axis, Row, Search

_WIDTH, _HEIGHT = 640, 220
_SIDE, _TOP, _BOTTOM = 30, 26, 10
# Colour and opacity by quantile of the metric, the worst first; as in the live view.
_RAMP = ((COLORS[0], 0.3), ("#5f8aa8", 0.3), ("#8a8a8a", 0.35), ("#b08050", 0.5), (COLORS[1], 1.0))
_MAX_LABELS = 8
_NAME_CHARACTER = 5.5  # width of one in a name


@dataclass(frozen=True, slots=True, kw_only=True)
class _AxisLine:
    """An axis of the picture; `share` maps a value to its height, from 0 at the bottom to 1."""

    name: str
    x: float
    share: Callable[[float], float]
    marks: list[tuple[float, str]]

    def y(self, value: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - self.share(value))


def svg_parallel(search: Search, rows: Sequence[Row]) -> str:
    """Return the picture of the trials with a metric; empty if no hyperparameter varies.

    Args:
        rows: The trials, best first.
    """
    rows = [row for row in rows if row["best"] is not None]
    if not search["axes"] or not rows:
        return ""
    axes = list(_axes(search, rows))
    paths: list[list[str]] = [[] for _ in _RAMP]
    for place, row in enumerate(rows):
        shade = len(_RAMP) - 1 - place * len(_RAMP) // len(rows)
        paths[shade].append(_path(axes, [*row["values"], row["best"]]))
    lines = "".join(
        f'<path d="{"".join(drawn)}" fill="none" stroke-width=".8" '
        f'stroke="{color}" stroke-opacity="{opacity}"/>'
        for drawn, (color, opacity) in zip(paths, _RAMP, strict=True)
        if drawn
    )
    room = (_WIDTH - 2 * _SIDE) / (len(axes) - 1)
    drawn_axes = "".join(_axis(axis, room) for axis in axes)
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}">{lines}{drawn_axes}</svg>'


def _axes(search: Search, rows: Sequence[Row]) -> Iterator[_AxisLine]:
    stride = (_WIDTH - 2 * _SIDE) / len(search["axes"])
    for place, axis in enumerate(search["axes"]):
        share, marks = _scale(axis)
        yield _AxisLine(name=axis["name"], x=_SIDE + place * stride, share=share, marks=marks)
    metrics = [row["best"] for row in rows if row["best"] is not None]
    smaller = search["smaller_is_better"]
    low, high = worth_drawing(metrics, smaller_is_better=smaller)
    upward = partial(share_of, low=low, high=high)
    yield _AxisLine(
        name=search["metric"],
        x=_WIDTH - _SIDE,
        share=(lambda value: 1 - upward(value)) if smaller else upward,
        marks=_marks(low, high),
    )


def _scale(axis: Axis) -> tuple[Callable[[float], float], list[tuple[float, str]]]:
    low, high, labels = axis["low"], axis["high"], axis["labels"]
    if axis["scale"] == "category":
        every = math.ceil(len(labels) / _MAX_LABELS) or 1
        marks = [(float(i), labels[i]) for i in range(0, len(labels), every)]
        return lambda value: (value + 0.5) / max(1, len(labels)), marks
    if axis["scale"] == "linear" or not 0 < low < high:
        marks = _marks(low, high, is_whole=axis["is_whole"])
        return partial(share_of, low=low, high=high), marks
    first, last = math.log10(low), math.log10(high)
    powers = range(math.ceil(first - 1e-9), math.floor(last + 1e-9) + 1)
    every = math.ceil(len(powers) / _MAX_LABELS) or 1
    values = [10.0**power for power in powers[::every]] if len(powers) > 1 else [low, high]
    return (
        lambda value: share_of(math.log10(value), first, last) if value > 0 else 0.0,
        [(value, tick_text(float(f"{value:.3g}"))) for value in values],
    )


def _marks(low: float, high: float, *, is_whole: bool = False) -> list[tuple[float, str]]:
    return [(tick, tick_text(tick)) for tick in ticks(low, high, is_whole=is_whole)]


def _path(axes: Sequence[_AxisLine], values: Sequence[float | None]) -> str:
    """Return a trial's line, with a gap where it has no value."""
    parts, is_down = [], False
    for axis, value in zip(axes, values, strict=True):
        if value is not None:
            parts.append(f"{'L' if is_down else 'M'}{axis.x:.0f} {axis.y(value):.1f}")
        is_down = value is not None
    return "".join(parts)


def _axis(axis: _AxisLine, room: float) -> str:
    longest = max(3, int(room / _NAME_CHARACTER) - 1)
    name = printable(axis.name)
    name = name if len(name) <= longest else name[: longest - 1] + "…"
    is_first, is_last = axis.x == _SIDE, axis.x == _WIDTH - _SIDE
    anchor, x = (
        ("start", 2) if is_first else ("end", _WIDTH - 2) if is_last else ("middle", axis.x)
    )
    side, shift = ("end", -4) if is_last else ("start", 4)
    return (
        f'<path d="M{axis.x:.1f} {_TOP}V{_HEIGHT - _BOTTOM}" stroke="currentColor"/>'
        + label(x, 12, anchor, name)
        + "".join(
            label(axis.x + shift, axis.y(value) + 3, side, printable(text))
            for value, text in axis.marks
        )
    )
