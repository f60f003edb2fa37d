"""Where things are in pictures: curves and shares to a tenth of a pixel."""

from __future__ import annotations

import re
from typing import Any

import pytest

from det_jupyter.view.forms.svg import COLORS, color, is_dashed, svg_chart
from det_jupyter.view.forms.verdict_card import svg_shares

CURVE: Any = {
    "trial_id": 1, "label": "x", "group": "validation", "steps": [0, 5, 10],
    "values": [1.0, 2.0, 3.0], "last": 3.0, "look": 0, "kind": "line", "is_faint": False,
}  # fmt: skip


def drawn(**changes: Any) -> str:
    return svg_chart({"title": "t", "series": [CURVE | changes]}, 10)  # type: ignore[typeddict-item]  # a part


def test_a_curve_is_where_its_values_are() -> None:
    svg = drawn()
    assert svg.startswith('<svg viewBox="0 0 320 150">')
    assert 'points="24.6,126.4 167.3,70.0 310.0,13.6"' in svg
    heights = re.findall(r'<line x1="24.6" x2="310" y1="([\d.]+)"', svg)
    assert heights == ["126.4", "98.2", "70.0", "41.8", "13.6"]
    assert re.findall(r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)".*?>(.*?)<', svg) == [
        ("19.6", "129.4", "end", "1"), ("19.6", "101.2", "end", "1.5"),
        ("19.6", "73.0", "end", "2"), ("19.6", "44.8", "end", "2.5"), ("19.6", "16.6", "end", "3"),
        ("24.6", "146.0", "middle", "0"), ("81.7", "146.0", "middle", "2"),
        ("138.8", "146.0", "middle", "4"), ("195.8", "146.0", "middle", "6"),
        ("252.9", "146.0", "middle", "8"), ("310.0", "146.0", "middle", "10"),
    ]  # fmt: skip


def test_points_around_a_gap_are_dots() -> None:
    svg = drawn(values=[1.0, None, 3.0])
    assert "<polyline" not in svg
    found = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="2.2"', svg)
    assert found == [("24.6", "126.4"), ("310.0", "13.6")]


@pytest.mark.parametrize(
    ("changes", "look", "dashed"),
    [
        ({}, ("1.2", COLORS[0], "1"), False),
        ({"look": len(COLORS) - 1}, ("1.2", COLORS[-1], "1"), False),
        ({"look": len(COLORS)}, ("1.2", COLORS[0], "1"), True),
        ({"kind": "dots"}, ("1.6", COLORS[0], "1"), False),
        ({"is_faint": True, "look": len(COLORS)}, ("0.8", "currentColor", "0.3"), False),
    ],
)
def test_curves_look_different(changes: Any, look: tuple[str, ...], dashed: bool) -> None:
    svg = drawn(**changes)
    (line,) = re.findall(r"<polyline.*?/>", svg)
    width, stroke, opacity = look
    assert f'stroke="{stroke}" stroke-width="{width}"' in line
    assert f'opacity="{opacity}"' in line
    assert ("stroke-dasharray" in line) == is_dashed(CURVE | changes) == dashed
    assert color(CURVE | changes) == stroke


ROW = 16


def share(kind: str, word: str, part: float) -> Any:
    return {"kind": kind, "word": word, "share": part}


def test_a_bar_of_shares_has_its_legend_in_rows() -> None:
    svg = svg_shares(
        [
            share("compute", "a" * 40, 0.5),
            share("input", "b" * 40, 0.25),
            share("transfer", "c" * 40, 0.25),
        ]
    )
    rects = re.findall(r'<rect x="([\d.]+)" y="(\d+)" width="([\d.]+)" height="(\d+)"', svg)
    assert rects[:3] == [
        ("0.0", "0", "320.0", "18"), ("320.0", "0", "160.0", "18"), ("480.0", "0", "160.0", "18"),
    ]  # fmt: skip
    swatches = [(float(x), int(y)) for x, y, _, _ in rects[3:]]
    texts = [(float(x), int(y)) for x, y in re.findall(r'<text x="([\d.]+)" y="(\d+)"', svg)]
    assert texts == [(x + 14, y + 9) for x, y in swatches]
    assert [y for _, y in swatches] == [24, 24, 24 + ROW]
    assert [x for x, _ in swatches] == [0.0, 280.0, 0.0]
    (height,) = re.findall(r'viewBox="0 0 640 (\d+)"', svg)
    assert int(height) == 24 + 2 * ROW
