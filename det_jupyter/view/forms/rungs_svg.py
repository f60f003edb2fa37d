"""Draws the rungs of a search as SVG: a column for each, with a mark for each trial at it.

`labextension/src/search/rungs.ts` draws the same in the live view.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from det_jupyter.contract.values.text import count, printable
from det_jupyter.view.forms.svg import COLORS, as_image, label, padded, share_of, tick_text, ticks
from det_jupyter.view.model.search_state import Row, Search
from det_jupyter.view.model.status_looks import MARKS, Mark, Tone

_WIDTH, _HEIGHT = 640, 220
_LEFT, _TOP, _BOTTOM, _STRIP = 44, 36, 8, 18
_GAP = 16  # between brackets
_GOLDEN = 0.618034  # spreads consecutive ids over a column
_COLORS: dict[Tone, str] = {
    "brand": COLORS[0],
    "good": COLORS[2],
    "warn": COLORS[1],
    "bad": "#d9534f",
    "text": "#888",
}


def trial_dots(row: Row) -> Iterator[tuple[int, Mark, float | None]]:
    """Yield rung, mark and metric of each of a trial's marks.

    The metric beyond the rungs it has reached is the latest one.
    """
    for place, mark in enumerate(row["marks"]):
        if place < len(row["rungs"]):
            yield place, mark, row["rungs"][place]
        else:
            yield row["aim"], mark, row["latest"]


def worth_drawing(values: Sequence[float], *, smaller_is_better: bool) -> tuple[float, float]:
    """Return the range to draw: without values far worse than most, which are drawn at its end.

    Otherwise one diverged trial would compress all others into a line.
    """
    low, high = min(values), max(values)
    ordered = sorted(values)
    first, third = (ordered[round(share * (len(ordered) - 1))] for share in (0.25, 0.75))
    reach = 4 * (third - first)
    if reach > 0 and smaller_is_better:
        high = min(high, third + reach)
    elif reach > 0:
        low = max(low, first - reach)
    return padded(low, high)


def svg_rungs(search: Search) -> str:
    """Return the picture; empty if the search has no rungs."""
    if not search["brackets"]:
        return ""
    marks = [
        (row, rung, mark, metric)
        for row in search["rows"]
        if row["bracket"] is not None
        for rung, mark, metric in trial_dots(row)
    ]
    finite = [metric for *_, metric in marks if metric is not None]
    frame = _Frame.of(search, finite, has_strip=len(finite) < len(marks))
    paths: dict[Mark, list[str]] = {}
    for row, rung, mark, metric in marks:
        x, y = frame.x(row, rung), frame.y(metric)
        paths.setdefault(mark, []).append(f"M{x:.1f} {y:.1f}{MARKS[mark]['path']}")
    body = frame.axes(search) + "".join(_path(mark, "".join(d)) for mark, d in paths.items())
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}">{body}</svg>'


def rung_legend(search: Search) -> str:
    """Return the legend of the marks that the picture contains, as HTML."""
    used = {mark for row in search["rows"] if row["bracket"] is not None for mark in row["marks"]}
    return "".join(_key(mark) for mark in MARKS if mark in used)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """Maps rungs and metrics to coordinates of the picture; better is higher."""

    low: float
    high: float
    smaller_is_better: bool
    has_strip: bool  # at the bottom, for trials without a metric
    lefts: list[float]  # left edge of each bracket
    width: float  # width of a column

    @classmethod
    def of(cls, search: Search, finite: Sequence[float], *, has_strip: bool) -> _Frame:
        sizes = [len(bracket["rungs"]) for bracket in search["brackets"]]
        width = (_WIDTH - _LEFT - _GAP * (len(sizes) - 1)) / max(1, sum(sizes))
        lefts = [_LEFT + sum(sizes[:i]) * width + i * _GAP for i in range(len(sizes))]
        smaller = search["smaller_is_better"]
        low, high = worth_drawing(finite, smaller_is_better=smaller) if finite else (0.0, 1.0)
        return cls(
            low=low,
            high=high,
            smaller_is_better=smaller,
            has_strip=has_strip,
            lefts=lefts,
            width=width,
        )

    def x(self, row: Row, rung: int) -> float:
        spread = math.modf(row["id"] * _GOLDEN)[0]
        return self.lefts[row["bracket"] or 0] + self.width * (rung + 0.12 + 0.76 * spread)

    def y(self, metric: float | None) -> float:
        bottom = _HEIGHT - _BOTTOM - (_STRIP if self.has_strip else 0)
        if metric is None:
            return _HEIGHT - _STRIP / 2
        share = share_of(metric, self.low, self.high)
        return _TOP + (bottom - _TOP) * (share if self.smaller_is_better else 1 - share)

    def axes(self, search: Search) -> str:
        parts = [
            label(self.lefts[0] - 5, self.y(tick) + 3, "end", tick_text(tick))
            for tick in ticks(self.low, self.high)
            if self.low <= tick <= self.high
        ]
        if self.has_strip:
            parts.append(label(self.lefts[0] - 5, self.y(None) + 3, "end", "none"))
        for left, bracket in zip(self.lefts, search["brackets"], strict=True):
            for place, rung in enumerate(bracket["rungs"]):
                x = left + place * self.width
                name = rung["label"] if self.width > 60 else rung["short_label"]
                facts = f"{rung['num_results']} → {rung['num_promoted']}"
                middle = x + self.width / 2
                parts.append(
                    f'<path d="M{x:.1f} {_TOP - 6}V{_HEIGHT - 4}" stroke="currentColor" '
                    'stroke-opacity=".25" stroke-dasharray="2 3"/>'
                    + label(middle, 10, "middle", printable(name))
                    + label(middle, 22, "middle", facts)
                )
        return "".join(parts)


def rung_sentences(search: Search) -> list[str]:
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
