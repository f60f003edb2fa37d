"""Paints parallel coordinates as SVG: an axis for each hyperparameter, a line for each trial.

`labextension/src/search/parallelpicture.ts` paints the same axes in the live view.
"""

from __future__ import annotations

from collections.abc import Sequence

from det_jupyter.view.forms.svg import COLORS, fitted, label, labels, room_for_ticks
from det_jupyter.view.making.axes import place_on
from det_jupyter.view.model.search_state import Axis, SearchState, TrialRow

_WIDTH, _HEIGHT = 640, 220
_SIDE, _TOP, _BOTTOM = 30, 26, 10
_FULL = 100  # lines; more are fainter
_GAP = 8  # between the labels of two axes
# Colour and opacity by quantile of the metric, the worst first; as in the live view.
_RAMP = ((COLORS[0], 0.3), ("#5f8aa8", 0.3), ("#8a8a8a", 0.35), ("#b08050", 0.5), (COLORS[1], 1.0))
# Lines end around labels: the colour of the page, which a label could have behind it, is unknown.
_MASK = (
    f'<mask id="free"><rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>'
    '<use href="#axes" stroke="#000" stroke-width="3"/></mask>'
)


def svg_parallel(search: SearchState, rows: Sequence[TrialRow]) -> str:
    """Return the picture of the trials with a metric; empty if no hyperparameter varies.

    Args:
        rows: The trials, best first.
    """
    rows = [row for row in rows if row["best"] is not None]
    if not search["axes"] or not rows:
        return ""
    axes = [*search["axes"], search["best_axis"]]
    right = max(_SIDE, room_for_ticks(search["best_axis"]))
    room = (_WIDTH - _SIDE - right) / (len(axes) - 1)
    placed = [(_SIDE + place * room, axis) for place, axis in enumerate(axes)]
    share = min(1.0, max(0.6, _FULL / len(rows)))
    paths: list[list[str]] = [[] for _ in _RAMP]
    for place, row in enumerate(rows):
        shade = len(_RAMP) - 1 - place * len(_RAMP) // len(rows)
        paths[shade].append(_path(placed, [*row["values"], row["best"]]))
    lines = "".join(
        f'<path d="{"".join(drawn)}" fill="none" stroke-width=".8" '
        f'stroke="{color}" stroke-opacity="{opacity * share:.2g}"/>'
        for drawn, (color, opacity) in zip(paths, _RAMP, strict=True)
        if drawn
    )
    drawn_axes = "".join(_axis(x, axis, room) for x, axis in placed[:-1])
    drawn_axes += _axis(_WIDTH - right, search["best_axis"], room, is_last=True)
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}">{_MASK}<g mask="url(#free)">{lines}</g>'
        f'<g id="axes">{drawn_axes}</g></svg>'
    )


def _y(axis: Axis, value: float) -> float:
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - place_on(axis, value))


def _path(axes: Sequence[tuple[float, Axis]], values: Sequence[float | None]) -> str:
    """Return a trial's line, with a gap where it has no value."""
    parts, is_down = [], False
    for (x, axis), value in zip(axes, values, strict=True):
        if value is not None:
            parts.append(f"{'L' if is_down else 'M'}{x:.0f} {_y(axis, value):.1f}")
        is_down = value is not None
    return "".join(parts)


def _axis(x: float, axis: Axis, room: float, *, is_last: bool = False) -> str:
    """Return an axis with its name, and its labels to its right: the last has room for them."""
    anchor, at = ("middle", x) if x > _SIDE else ("start", 2)
    anchor, at = ("end", _WIDTH - 2) if is_last else (anchor, at)
    return (
        f'<path d="M{x:.1f} {_TOP}V{_HEIGHT - _BOTTOM}" stroke="currentColor"/>'
        + label(at, 12, anchor, fitted(axis["name"], room - _GAP))
        + "".join(
            label(
                x + 4, _y(axis, value) + 3, "start", text if is_last else fitted(text, room - _GAP)
            )
            for value, text in labels(axis)
        )
    )
