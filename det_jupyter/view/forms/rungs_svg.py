"""Paints the rungs of a search as SVG: a column for each, with a mark for each trial at it.

`labextension/src/search/rungspicture.ts` paints the same columns and axis in the live view.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from det_jupyter.contract.values.text import count, printable
from det_jupyter.view.forms.svg import (
    COLORS,
    as_image,
    first_fitting,
    label,
    labels,
    room_for_ticks,
)
from det_jupyter.view.making.axes import place_on
from det_jupyter.view.making.rungs import across, trial_dots
from det_jupyter.view.model.search_state import RungState, SearchState, TrialRow
from det_jupyter.view.model.status_looks import MARKS, Mark, Tone

_WIDTH, _HEIGHT = 640, 220
_LEFT, _TOP, _BOTTOM, _STRIP = 44, 36, 8, 18  # the left edge moves where labels need more room
_GAP = 4  # between the headings of two columns
_COLORS: dict[Tone, str] = {
    "brand": COLORS[0],
    "good": COLORS[2],
    "warn": COLORS[1],
    "bad": "#d9534f",
    "text": "#888",
}


def svg_rungs(search: SearchState) -> str:
    """Return the picture; empty if the search has no rungs."""
    if not search["brackets"]:
        return ""
    dots = [(row, *dot) for row in search["rows"] for dot in trial_dots(row)]
    frame = _Frame(search=search, has_strip=any(metric is None for *_, metric in dots))
    paths: dict[Mark, list[str]] = {}
    for row, rung, mark, metric in dots:
        x, y = frame.x(row, rung), frame.y(metric)
        paths.setdefault(mark, []).append(f"M{x:.1f} {y:.1f}{MARKS[mark]['path']}")
    body = frame.axes() + "".join(_path(mark, "".join(d)) for mark, d in paths.items())
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}">{body}</svg>'


def rung_legend(search: SearchState) -> str:
    """Return the legend of the marks that the picture contains, as HTML."""
    used = {mark for row in search["rows"] for mark in row["marks"]}
    return "".join(_key(mark) for mark in MARKS if mark in used)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """Maps rungs and metrics to coordinates of the picture; better is higher."""

    search: SearchState
    has_strip: bool  # at the bottom, for trials without a metric

    @property
    def edge(self) -> float:
        """The left edge of the first column, after the longest label of the axis."""
        return max(_LEFT, room_for_ticks(self.search["rung_axis"]))

    def left(self, rung: RungState) -> float:
        """The left edge of a column."""
        return self.edge + (_WIDTH - self.edge) * rung["left"]

    @property
    def width(self) -> float:
        """The width of a column."""
        return (_WIDTH - self.edge) * self.search["rung_width"]

    def x(self, row: TrialRow, rung: int) -> float:
        column = self.search["brackets"][row["bracket"] or 0]["rungs"][rung]
        return self.left(column) + self.width * across(row["id"])

    def y(self, metric: float | None) -> float:
        if metric is None:
            return _HEIGHT - _STRIP / 2
        bottom = _HEIGHT - _BOTTOM - (_STRIP if self.has_strip else 0)
        return _TOP + (bottom - _TOP) * (1 - place_on(self.search["rung_axis"], metric))

    def axes(self) -> str:
        parts = [
            label(self.edge - 5, self.y(value) + 3, "end", text)
            for value, text in labels(self.search["rung_axis"])
        ]
        if self.has_strip:
            parts.append(label(self.edge - 5, self.y(None) + 3, "end", "none"))
        for rung, name, facts in self.headings():
            x = self.left(rung)
            middle = x + self.width / 2
            parts.append(
                f'<path d="M{x:.1f} {_TOP - 6}V{_HEIGHT - 4}" stroke="currentColor" '
                'stroke-opacity=".25" stroke-dasharray="2 3"/>'
                + label(middle, 10, "middle", printable(name))
                + label(middle, 22, "middle", facts)
            )
        return "".join(parts)

    def headings(self) -> Iterable[tuple[RungState, str, str]]:
        """Each rung with its name, and the numbers of its trials; as short as columns need."""
        rungs = [rung for bracket in self.search["brackets"] for rung in bracket["rungs"]]
        names = [[rung["label"] for rung in rungs], [rung["short_label"] for rung in rungs]]
        facts = [
            [f"{rung['num_results']}{arrow}{rung['num_promoted']}" for rung in rungs]
            for arrow in (" → ", "→")
        ]
        room = self.width - _GAP
        return zip(rungs, first_fitting(names, room), first_fitting(facts, room), strict=True)


def rung_sentences(search: SearchState) -> list[str]:
    """Return a sentence per bracket: how many trials reached each rung, and were promoted."""
    sentences = []
    for place, bracket in enumerate(search["brackets"], start=1):
        rungs = [
            f"{rung['label']}: {rung['num_results']} reached, {rung['num_promoted']} promoted"
            for rung in bracket["rungs"]
        ]
        name = f"bracket {place} ({count(bracket['num_created'], 'trial')}): "
        is_only = len(search["brackets"]) == 1
        sentences.append(("" if is_only else name) + " · ".join(rungs))
    return sentences


def _path(mark: Mark, d: str) -> str:
    look = MARKS[mark]
    color = _COLORS[look["tone"]]
    if look["is_filled"]:
        return f'<path d="{d}" fill="{color}" fill-opacity=".85"/>'
    return f'<path d="{d}" fill="none" stroke="{color}" stroke-width="1.4"/>'


def _key(mark: Mark) -> str:
    picture = _path(mark, f"M5 6{MARKS[mark]['path']}")
    return (
        '<span style="margin-right:12px;font-size:12px;display:inline-block">'
        + as_image(f'<svg viewBox="0 0 10 12">{picture}</svg>', "", "width:10px;height:12px")
        + f" {MARKS[mark]['word']}</span>"
    )
